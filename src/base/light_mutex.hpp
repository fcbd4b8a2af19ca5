// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace tutti {

/// A spinning mutex for critical sections of tens of nanoseconds. Locking without contention takes one atomic
/// exchange; unlocking is a plain store, because waiting threads spin and then sleep for short intervals and
/// need no wake-up. It is neither fair nor recursive.
class LightMutex {
 public:
  LightMutex() = default;
  LightMutex(const LightMutex&) = delete;
  LightMutex& operator=(const LightMutex&) = delete;
  ~LightMutex() = default;

  [[nodiscard]] bool try_lock() noexcept { return !is_locked_.test_and_set(std::memory_order_acquire); }
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  void unlock() noexcept { is_locked_.clear(std::memory_order_release); }

 private:
  static constexpr int looks =
      200;  ///< some microseconds, about as long as falling asleep and waking up take
  static constexpr std::chrono::microseconds nap{50};

  void wait() noexcept {
    for (;; std::this_thread::sleep_for(nap)) {
      for (int look = 0; look < looks; ++look) {
        if (!is_locked_.test(std::memory_order_relaxed) && try_lock()) return;
      }
    }
  }

  std::atomic_flag is_locked_;
};

}  // namespace tutti
