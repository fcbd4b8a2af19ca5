// SPDX-License-Identifier: Apache-2.0
#include "support/full_disk.hpp"

#include "collectives/bootstrap/folder/shared_folder.hpp"
#include "collectives/bootstrap/network_messages.hpp"
#include "support/errors.hpp"
#include "support/timing.hpp"
#include "tutti/error.hpp"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <latch>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

/// Ranks whose shared folder is on a disk that is full.
namespace tutti::test {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using shared_folder::Rendezvous;

class FullSharedFolder : public SharedFolder {};

TEST_F(FullSharedFolder, IsToldOfAtOnceInTheExchange) {
  for (const int full : {0, 2}) {
    std::optional<FullDisk> disk;
    std::latch have_met(3);
    on_ranks(3, [&](const Rendezvous& rendezvous) {
      shared_folder::Exchange exchange(rendezvous);
      meet(exchange);
      have_met.arrive_and_wait();
      if (rendezvous.rank == full) disk.emplace();
      const Stopwatch watch;
      // The others fail to write, too, or hear why there is nothing to read.
      EXPECT_TRUE(
          refuses([&] { meet(exchange); }, ErrorCode::transport_failure, {"No space left on device"}));
      EXPECT_LT(watch.elapsed(), patient(5s));
    });
    disk.reset();
    EXPECT_TRUE(fs::is_empty(folder_));
  }
}

TEST_F(FullSharedFolder, IsToldOfAtOnceInANetwork) {
  std::optional<FullDisk> disk;
  on_ranks(3, [&](const Rendezvous& rendezvous) {
    std::unique_ptr<Network> network;
    {
      shared_folder::Exchange exchange(rendezvous);
      network = exchange.network();
    }
    if (rendezvous.rank == 1) {
      disk.emplace();
      EXPECT_TRUE(refuses([&] { network->send(0, message(1, 0, 8)); }, ErrorCode::transport_failure,
                          {"No space left on device"}));
      return;
    }
    const Stopwatch watch;
    EXPECT_TRUE(refuses([&] { static_cast<void>(wait_for_message(*network)); }, ErrorCode::peer_unavailable,
                        {"rank 1 cannot go on", "No space left on device"}));
    EXPECT_LT(watch.elapsed(), patient(5s));
  });
  disk.reset();
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FullSharedFolder, IsNamedBeforeRanksMeet) {
  const FullDisk disk;
  EXPECT_TRUE(refuses([&] { shared_folder::Exchange{as_rank(0, 2)}; }, ErrorCode::transport_failure,
                      {"No space left on device"}));
  EXPECT_TRUE(refuses([&] { shared_folder::Exchange{as_rank(1, 2)}; }, ErrorCode::transport_failure,
                      {"No space left on device"}));
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(FullSharedFolder, IsToldOfAtOnceWhenARankArrives) {
  std::optional<FullDisk> disk;
  on_ranks(3, [&](const Rendezvous& rendezvous) {
    if (rendezvous.rank == 2) {
      const fs::path session = session_with("here-1");
      // What it needs to be invited, and the space that it reserves, but none to say that it is there.
      constexpr std::size_t tag = 32;
      disk.emplace(tag + sizeof(int) + tag + session.filename().string().size() + tag + 1024 + tag / 2);
    }
    const Stopwatch watch;
    EXPECT_TRUE(refuses([&] { shared_folder::Exchange{rendezvous}; }, ErrorCode::transport_failure,
                        {"No space left on device"}));
    EXPECT_LT(watch.elapsed(), patient(5s));
  });
  disk.reset();
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace tutti::test
