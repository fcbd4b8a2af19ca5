// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "os/thread.hpp"
#include "stream/event_pool.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>

namespace tutti::transport::team {

/// Tracks the progress of devices that count calls in their own memory. It polls them by a copy on a separate
/// stream: if each call wrote to host memory, that would cost its kernel as much as a small message.
///
/// Only this class's thread polls, because calls of the backend may wait for what only the team's watchdog
/// can end. Thread-safe.
class DeviceProgress {
 public:
  struct Device {
    backend::StreamRef stream;                              ///< used by nobody else
    const std::atomic<std::uint32_t>* on_device = nullptr;  ///< in the device's memory
    backend::SharedFlag* known = nullptr;                   ///< in registered memory; the copy's target
    const backend::TeamRecord* record_on_device = nullptr;  ///< nullptr: none
    backend::TeamRecord* known_record = nullptr;            ///< the copy's target; nullptr: none
  };

  /// Polls while `is_behind` returns true; reports failures to `fail`, which must not throw.
  DeviceProgress(Runtime& runtime, std::span<const Device> devices, std::function<bool()> is_behind,
                 std::function<void(const backend::Escaped&)> fail);
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;
  /// The devices' work must be over.
  ~DeviceProgress();

  /// Polls now, and waits for the answers, but not for long.
  void look() noexcept;
  /// Returns the time, in nanoseconds of `RankStatus::now`, up to which everything that devices have
  /// completed is known.
  [[nodiscard]] std::int64_t known_until() const noexcept;
  /// Returns how long a device, or the call that polls it, has owed an answer.
  [[nodiscard]] std::chrono::nanoseconds silence() const noexcept;

 private:
  struct Question {
    Device device;
    PooledEvent event;  ///< recorded after the copy
    std::atomic<bool> is_open = false;
    std::atomic<std::int64_t> asked_at = 0;
    std::atomic<std::int64_t> known_until = 0;  ///< when the last answered question was asked
  };

  void run();
  void ask() noexcept;
  void queue_copies(const Device& device);

  Runtime& runtime_;
  std::function<bool()> is_behind_;
  std::function<void(const backend::Escaped&)> fail_;
  std::mutex mutex_;
  std::atomic<std::int64_t> asks_since_ = 0;  ///< 0: no thread is asking
  std::deque<Question> questions_;            ///< asked and answered under `mutex_`
  std::mutex stop_mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;
  backend::Thread thread_;
};

}  // namespace tutti::transport::team
