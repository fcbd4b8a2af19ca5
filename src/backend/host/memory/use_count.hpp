// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace tutti::backend::host {

/// Counts the current users of something, so that it can be exchanged while there are none. Thread-safe.
///
/// One user may enter several times. A thread that excludes users lets those go first that come while it
/// waits, as users may wait for one another.
class UseCount {
 public:
  void enter() noexcept {
    std::uint32_t seen = state_.load();
    for (;;) {
      if (seen == excluded) {
        state_.wait(seen);
        seen = state_.load();
      } else if (state_.compare_exchange_weak(seen, seen + 1)) {
        return;
      }
    }
  }
  void leave() noexcept {
    if (state_.fetch_sub(1) == 1) state_.notify_all();
  }

  /// Leaves and enters again, for a user that waits for something, so that others get a chance to exclude.
  void make_way() noexcept {
    leave();
    if (excluding_.load() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    enter();
  }

  /// Waits until nobody uses it, and keeps users out until `admit`.
  void exclude() noexcept {
    ++excluding_;
    for (std::uint32_t seen = 0; !state_.compare_exchange_strong(seen, excluded); seen = 0) state_.wait(seen);
    --excluding_;
  }
  void admit() noexcept {
    state_.store(0);
    state_.notify_all();
  }

 private:
  static constexpr std::uint32_t excluded = UINT32_MAX;
  std::atomic<std::uint32_t> state_{0};
  std::atomic<std::uint32_t> excluding_{0};  ///< threads that wait for users to leave
};

}  // namespace tutti::backend::host
