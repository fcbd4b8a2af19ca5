// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "sharing/deferred_closes.hpp"
#include "transport/team/calls/device_room.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace tutti::transport::team {

class CallLog;

/// The result of an attempt to do work while nothing waits for other ranks.
enum class Attempt : std::uint8_t {
  done,
  not_now,   ///< calls are under way, or being made
  not_soon,  ///< a living communicator has captured calls or symmetric memory: nobody knows when these run
};

/// Lists the teams of this process whose devices wait for others, each by its call log. It is a part of
/// the runtime, shared by the teams. Thread-safe.
class LiveTeams : public std::enable_shared_from_this<LiveTeams> {
 public:
  explicit LiveTeams(Runtime& runtime);
  LiveTeams(const LiveTeams&) = delete;
  LiveTeams& operator=(const LiveTeams&) = delete;

  /// Adds a complete team with its local devices; it must be removed before any part of it is destroyed.
  void add(CallLog& calls, std::span<const int> devices);
  /// Removes the team; does nothing if it has not been added.
  void remove(const CallLog& calls) noexcept;
  /// Stops counting a team that has been ended and may never be removed: its rounds wait for nothing, so that
  /// others need not leave room for them.
  void stop_counting(const CallLog& calls) noexcept;
  /// Returns the room on a device for kernels of the teams that may have waiting ones there.
  [[nodiscard]] DeviceRoom& room_on(int device) noexcept { return rooms_[static_cast<std::size_t>(device)]; }
  /// Notes that the kernels for which a team has taken room are over once the stream has come to this point.
  void note_end(const CallLog& calls, backend::StreamRef stream);
  /// Calls `work`, which may wait for devices, if nothing waits for other ranks, and keeps calls from being
  /// made meanwhile. All teams count, whatever their devices, because streams of other devices may wait for
  /// them; only teams that have been ended do not. `asker` counts in any case; it need not be among the
  /// teams, and may be nullptr.
  Attempt while_idle(const CallLog* asker, const std::function<void()>& work);
  /// Calls `work` if there are no teams, and keeps any from being added meanwhile.
  [[nodiscard]] bool while_none(const std::function<void()>& work);

 private:
  struct Entry {
    CallLog* calls;
    std::vector<int> devices;
  };

  void leave_rooms(const Entry& entry) noexcept;

  Runtime& runtime_;
  const std::shared_ptr<QuietCloses> closes_;
  std::mutex mutex_;
  bool has_gates_ = false;  ///< `closes_` knows of the teams
  std::vector<Entry> teams_;
  std::deque<DeviceRoom> rooms_;  ///< by device
};

}  // namespace tutti::transport::team
