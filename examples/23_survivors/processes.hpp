// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include <sys/types.h>

namespace example {

inline constexpr int most_ranks = 4;

/// Where processes meet, in memory that they share.
struct MeetingPlace {
  static constexpr std::size_t slot_bytes = 4096;

  std::atomic<int> arrived;
  std::atomic<int> round;
  std::array<std::array<std::array<std::byte, slot_bytes>, most_ranks>, 2> slots;
};

/// All that a communicator needs of a launcher, for processes of one host.
class Meeting final : public tutti::Exchange {
 public:
  Meeting(MeetingPlace& place, int rank, int size) : place_(place), rank_(rank), size_(size) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;

 private:
  MeetingPlace& place_;
  int rank_;
  int size_;
};

/// Starts `count` processes, runs `work` in each, and `spare_work`, if given, in one more that does not meet
/// them, and waits for all. Returns how many were killed. Throws if one ends with an error.
int run_ranks(int count, const std::function<void(tutti::Exchange& exchange)>& work,
              const std::function<void()>& spare_work = {});

/// Returns a port of the loopback address at which nobody listens.
[[nodiscard]] int free_port();

/// Returns zero-filled memory that processes forked from now on share.
[[nodiscard]] void* shared_memory(std::size_t bytes);

}  // namespace example
