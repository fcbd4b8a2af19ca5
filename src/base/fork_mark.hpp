// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

/// Tells children forked off later from the process that made it. In them, other threads' locks are held for
/// ever.
class ForkMark {
 public:
  [[nodiscard]] bool is_in_child() const noexcept {
    return forks.load(std::memory_order_relaxed) != made_at_;
  }
  /// In the child. `Runtime` sees to it.
  static void count_fork() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::uint32_t> forks{0};  ///< to this process, along the line of its parents
  std::uint32_t made_at_ = forks.load(std::memory_order_relaxed);
};

}  // namespace tutti
