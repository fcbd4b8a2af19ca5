// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "sharing/deferred_closes.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::transport::team {

class CallLog;

/// Some work is done only while nothing waits for other ranks: this is what has become of it.
enum class Attempt : std::uint8_t {
  done,
  not_now,   ///< calls are under way, or being made
  not_soon,  ///< a communicator lives of which calls have been captured: nobody knows when graphs run
};

/// The teams of this process whose devices wait for others, each by its log of calls. The object is an
/// extension of the runtime, which the teams share. Thread-safe.
class LiveTeams : public std::enable_shared_from_this<LiveTeams> {
 public:
  explicit LiveTeams(Runtime& runtime)
      : closes_(runtime.extension<QuietCloses>().shared_from_this()),
        counts_(static_cast<std::size_t>(runtime.device_count())) {}
  LiveTeams(const LiveTeams&) = delete;
  LiveTeams& operator=(const LiveTeams&) = delete;

  /// Adds a team that is complete, with its local devices; it is removed before any part of it goes.
  void add(CallLog& calls, std::span<const int> devices);
  /// Does nothing if it has not been added.
  void remove(const CallLog& calls) noexcept;
  /// The team has been ended, so that its rounds wait for nothing, and may never be removed: others need not
  /// leave room for them.
  void stop_counting(const CallLog& calls) noexcept;
  /// How many teams may have rounds that wait on the device at once.
  [[nodiscard]] std::uint32_t count_on(int device) const noexcept {
    return counts_[static_cast<std::size_t>(device)].load(std::memory_order_relaxed);
  }
  /// Calls `work`, which may wait for devices, if nothing waits for other ranks, and keeps calls from being
  /// made meanwhile. All teams count, whatever their devices, as streams of other devices may wait for them,
  /// but for those that have been ended, of whose work nothing waits any more. `asker` counts even then; it
  /// need not be among the teams, and may be nullptr.
  Attempt while_idle(const CallLog* asker, const std::function<void()>& work);
  /// Calls `work` if there are no teams, and keeps any from being added meanwhile.
  [[nodiscard]] bool while_none(const std::function<void()>& work);

 private:
  struct Entry {
    CallLog* calls;
    std::vector<int> devices;
  };

  void count_out(const Entry& entry) noexcept;

  const std::shared_ptr<QuietCloses> closes_;
  std::mutex mutex_;
  bool has_gates_ = false;  ///< whether `closes_` has come to know of the teams
  std::vector<Entry> teams_;
  std::vector<std::atomic<std::uint32_t>> counts_;  ///< by device
};

}  // namespace tutti::transport::team
