// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "os/thread.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>

namespace tutti::transport::team {

/// How far devices have come that count in their own memory. They are asked now and then, by a copy on a
/// stream of its own: if each call wrote to host memory, that would cost its kernel as much as a small
/// message.
///
/// A thread asks, and no other has to: calls of the backend may wait for what only the team's watch can end.
/// Thread-safe.
class DeviceProgress {
 public:
  struct Device {
    backend::StreamRef stream;                              ///< nobody else's
    const std::atomic<std::uint32_t>* on_device = nullptr;  ///< in its memory
    backend::SharedFlag* known = nullptr;  ///< in registered memory, to be brought up to date
    const backend::TeamRecord* record_on_device = nullptr;  ///< nullptr: none
    backend::TeamRecord* known_record = nullptr;            ///< likewise
  };

  /// Asks while `is_behind` says that there is something to hear; calls `fail`, which must not throw, with
  /// what prevents that.
  DeviceProgress(Runtime& runtime, std::span<const Device> devices, std::function<bool()> is_behind,
                 std::function<void(const backend::Escaped&)> fail);
  DeviceProgress(const DeviceProgress&) = delete;
  DeviceProgress& operator=(const DeviceProgress&) = delete;
  /// The devices' work is over.
  ~DeviceProgress();

  /// Asks now, and waits for the answers, but not for long.
  void look() noexcept;
  /// All that devices had completed at this time is known, in nanoseconds of `RankStatus::now`.
  [[nodiscard]] std::int64_t known_until() const noexcept;
  /// How long a device, or the call that asks it, has owed an answer.
  [[nodiscard]] std::chrono::nanoseconds silence() const noexcept;

 private:
  struct Question {
    Device device;
    PooledEvent event;  ///< behind the copy
    std::atomic<bool> is_open = false;
    std::atomic<std::int64_t> asked_at = 0;
    std::atomic<std::int64_t> known_until = 0;  ///< when the last question was asked that has been answered
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
