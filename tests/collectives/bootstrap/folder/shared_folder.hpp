// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/temporary_folder.hpp"
#include "tutti/shared_folder.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Has ranks meet in a folder of its own, as threads.
class SharedFolder : public testing::Test {
 protected:
  SharedFolder() {
    std::filesystem::create_directory(folder_);
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  }

  [[nodiscard]] shared_folder::Rendezvous as_rank(int rank, int size) const {
    return {.rank = rank,
            .size = size,
            .local_rank = rank,
            .folder = folder_,
            .secret = "0123456789abcdef",
            .job = "a test",
            .timeout = std::chrono::seconds(20)};
  }
  /// Runs a function for each rank on a thread of its own.
  void on_ranks(int size, const std::function<void(const shared_folder::Rendezvous&)>& work) const {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([=, this] { work(as_rank(rank, size)); });
    }
  }
  static std::vector<std::byte> meet(shared_folder::Exchange& exchange, std::byte mine = {}) {
    std::vector<std::byte> all(static_cast<std::size_t>(exchange.size()));
    exchange.all_gather({&mine, 1}, all);
    return all;
  }
  /// Returns the job's folder, if there is one.
  [[nodiscard]] std::optional<std::filesystem::path> job() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) return entry.path();
    return std::nullopt;
  }

  [[nodiscard]] std::ptrdiff_t hellos_of_rank_1() const {
    if (!job()) return 0;
    return std::ranges::count_if(std::filesystem::directory_iterator(*job()), [](const auto& entry) {
      return entry.path().filename().string().starts_with("hello-1-");
    });
  }

  /// Waits until the session that ranks are about to begin has a file of this name. Returns its folder.
  [[nodiscard]] std::filesystem::path session_with(const std::string& name) const {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      if (!job()) continue;
      for (const auto& entry : std::filesystem::directory_iterator(*job())) {
        if (entry.is_directory() && std::filesystem::exists(entry.path() / name)) return entry.path();
      }
    }
  }

  const TemporaryFolder around_;
  const std::string folder_ = around_.path("folder");
};

}  // namespace tutti::test
