#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::backend::host {

/// Who uses something right now, so that it can be exchanged while nobody does. Thread-safe.
///
/// One user may enter several times. Whoever excludes lets users go first that come while it waits: users
/// may wait for one another.
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

  /// Returns when nobody uses it, and keeps users out until `admit`.
  void exclude() noexcept {
    for (std::uint32_t seen = 0; !state_.compare_exchange_strong(seen, excluded); seen = 0) state_.wait(seen);
  }
  void admit() noexcept {
    state_.store(0);
    state_.notify_all();
  }

 private:
  static constexpr std::uint32_t excluded = UINT32_MAX;
  std::atomic<std::uint32_t> state_{0};
};

}  // namespace tutti::backend::host
