// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

/// A mutex for what takes tens of nanoseconds. Locking and unlocking one that nobody else wants takes two
/// atomic operations, and no call, of which std::mutex takes two. Who has to wait looks for a while first,
/// then sleeps. Neither fair nor recursive. After U. Drepper, "Futexes Are Tricky", 2011 (its third mutex).
class LightMutex {
 public:
  LightMutex() = default;
  LightMutex(const LightMutex&) = delete;
  LightMutex& operator=(const LightMutex&) = delete;
  ~LightMutex() = default;

  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t expected = unlocked;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }
  void lock() noexcept {
    if (!try_lock()) [[unlikely]]
      wait();
  }
  void unlock() noexcept {
    if (state_.exchange(unlocked, std::memory_order_release) == locked_with_sleepers) [[unlikely]]
      state_.notify_one();
  }

 private:
  static constexpr std::uint32_t unlocked = 0;
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t locked_with_sleepers = 2;
  static constexpr int looks = 200;  ///< some microseconds, as long as falling asleep and waking up take

  void wait() noexcept {
    for (int look = 0; look < looks; ++look) {
      if (state_.load(std::memory_order_relaxed) == unlocked && try_lock()) return;
    }
    // There may be others who sleep: who gets it after a sleep has to wake one.
    while (state_.exchange(locked_with_sleepers, std::memory_order_acquire) != unlocked)
      state_.wait(locked_with_sleepers, std::memory_order_relaxed);
  }

  std::atomic<std::uint32_t> state_ = unlocked;
};

}  // namespace tutti
