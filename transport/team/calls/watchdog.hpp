// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/thread.hpp"
#include "transport/team/calls/links.hpp"
#include "transport/team/calls/replays.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/suspension_detector.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

namespace tutti::transport::team {

/// Runs a thread that watches over a team's calls that wait for others, and tells the other ranks that this
/// process goes on. It warns of late ranks, and ends the team when a call has waited too long, when a rank
/// that a call waits for has left, or when a process is gone. Thread-safe.
class Watchdog {
 public:
  Watchdog(const Membership& membership, const SharedState& state, Progress& progress,
           const FailureDetector& failure_detector, Waiting& waiting, Links& links, Replays& replays,
           Abort& abort);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { stop(); }

  void start();
  /// Stops the thread and waits for its end.
  void stop() noexcept;
  /// Sets a handler that the thread calls once, soon after the team has been ended. Empty: none.
  void set_abort_handler(std::function<void()> handler);

 private:
  void run(SuspensionDetector pauses);
  /// Does one round of checks.
  void look_around(SuspensionDetector& pauses);

  const Membership& membership_;
  const SharedState state_;
  Progress& progress_;
  const FailureDetector& failure_detector_;
  Waiting& waiting_;
  Links& links_;
  Replays& replays_;
  Abort& abort_;
  std::uint64_t done_ = 0;       ///< calls completed; used by the thread only
  std::int64_t done_since_ = 0;  ///< time of the last change of `done_`; used by the thread only
  std::mutex mutex_;
  std::condition_variable stops_;
  bool is_stopping_ = false;             ///< guarded by `mutex_`
  std::function<void()> abort_handler_;  ///< guarded by `mutex_`
  backend::Thread thread_;
};

}  // namespace tutti::transport::team
