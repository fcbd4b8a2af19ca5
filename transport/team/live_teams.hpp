// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::transport::ranks {

class Team;

/// What came of work that is done while nothing waits for other ranks.
enum class Attempt : std::uint8_t {
  done,
  not_now,   ///< calls are under way, or being made
  not_soon,  ///< a communicator lives of which calls have been captured: nobody knows when graphs run
};

/// The teams of this process whose devices wait for others. An extension of the runtime, shared with the
/// teams. Thread-safe.
class LiveTeams : public std::enable_shared_from_this<LiveTeams> {
 public:
  explicit LiveTeams(Runtime& runtime) : counts_(static_cast<std::size_t>(runtime.device_count())) {}
  LiveTeams(const LiveTeams&) = delete;
  LiveTeams& operator=(const LiveTeams&) = delete;

  /// A team that is complete; it is removed before any part of it goes.
  void add(Team& team);
  void remove(const Team& team) noexcept;
  /// Of a team that has been ended, so that its rounds wait for nothing, and is never removed.
  void stop_counting(const Team& team) noexcept;
  /// How many there are on the device.
  [[nodiscard]] std::uint32_t count_on(int device) const noexcept {
    return counts_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
  }
  /// Calls `work`, which may wait for devices, if nothing waits for other ranks, and keeps calls from being
  /// made meanwhile. Whatever its device: streams of others may wait for it. `asker` is asked even if it has
  /// been ended: of other teams' work, nothing waits any more then.
  Attempt while_idle(const Team* asker, const std::function<void()>& work);

 private:
  void count_out(const Team& team) noexcept;

  std::mutex mutex_;
  std::vector<Team*> teams_;
  std::vector<std::atomic<std::uint32_t>> counts_;  ///< by device
};

}  // namespace tutti::transport::ranks
