// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace tutti::transport::team {

/// Wakes the host proxy's thread when something has changed in this rank's part of the shared state. The
/// thread also polls by itself; this only makes it faster. Costs a load where there is no such thread.
/// Thread-safe.
class LocalNews {
 public:
  LocalNews() = default;
  LocalNews(const LocalNews&) = delete;
  LocalNews& operator=(const LocalNews&) = delete;
  ~LocalNews() = default;

  /// Makes announcements wake the listener from now on.
  void listen() noexcept { has_listener_.store(true); }
  void announce() noexcept {
    if (!has_listener_.load(std::memory_order_relaxed)) return;
    {
      const std::lock_guard lock(mutex_);
      is_new_ = true;
    }
    announced_.notify_one();
  }
  /// Begins a look of the listener: what is announced from here on is news.
  void begin_to_look() noexcept {
    const std::lock_guard lock(mutex_);
    is_new_ = false;
  }
  /// Waits for at most `longest` until there has been news since the listener began to look. Returns true if
  /// there has been.
  [[nodiscard]] bool wait_for(std::chrono::microseconds longest) {
    std::unique_lock lock(mutex_);
    return announced_.wait_for(lock, longest, [this] { return is_new_; });
  }

 private:
  std::atomic<bool> has_listener_ = false;
  std::mutex mutex_;
  std::condition_variable announced_;
  bool is_new_ = false;  ///< guarded by `mutex_`
};

}  // namespace tutti::transport::team
