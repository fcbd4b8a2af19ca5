// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace tutti::perf {

/// Ends the run if a row takes too long: first `check_interrupt` throws TimedOut; if work is still stuck some
/// seconds later, the process ends.
class RowDeadline {
 public:
  /// Sets the limit; without one, this object does nothing. `release` is called once, on another thread: it
  /// ends waits for other ranks.
  RowDeadline(std::optional<std::chrono::seconds> limit,
              std::function<void(const std::string& reason)> release);
  RowDeadline(const RowDeadline&) = delete;
  RowDeadline& operator=(const RowDeadline&) = delete;
  ~RowDeadline();

  /// Runs `work` within the limit; `what` names it in the message.
  void hold(const std::string& what, const std::function<void()>& work);

 private:
  void start(const std::string& what);
  void stop();
  void watch();
  /// Waits, with the lock held, until `end` or the end of the row. Returns true if the row lasts until `end`.
  [[nodiscard]] bool lasts_until(std::unique_lock<std::mutex>& lock,
                                 std::chrono::steady_clock::time_point end);

  std::optional<std::chrono::seconds> limit_;
  std::function<void(const std::string&)> release_;
  std::mutex mutex_;
  std::condition_variable change_;
  std::optional<std::chrono::steady_clock::time_point> begin_;  ///< of a row that is under way
  std::string message_;
  bool is_over_ = false;  ///< there are no more rows
  std::thread watcher_;
};

}  // namespace tutti::perf
