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

/// Ends the run when a row takes too long: first by `check_interrupt`, which throws TimedOut from then on;
/// what is stuck all the same, ends with the process, some seconds later.
class RowDeadline {
 public:
  /// `release` is called on another thread, once: it frees what waits for other ranks. Without a limit
  /// nothing is.
  RowDeadline(std::optional<std::chrono::seconds> limit,
              std::function<void(const std::string& reason)> release);
  RowDeadline(const RowDeadline&) = delete;
  RowDeadline& operator=(const RowDeadline&) = delete;
  ~RowDeadline();

  /// Runs `work`, which is `what`, in so long.
  void hold(const std::string& what, const std::function<void()>& work);

 private:
  void start(const std::string& what);
  void stop();
  void watch();
  /// With the lock. Whether the row lasts until then.
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
