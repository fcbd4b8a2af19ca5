// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti {

/// Tells whether the calling process is the one that made the mark, or a child forked off later. In such a
/// child, locks that other threads held stay locked for ever.
class ForkMark {
 public:
  [[nodiscard]] bool is_in_child() const noexcept {
    return forks.load(std::memory_order_relaxed) != made_at_;
  }
  /// Is called in the child after each fork (by `Runtime`).
  static void count_fork() noexcept { forks.fetch_add(1, std::memory_order_relaxed); }

 private:
  static inline std::atomic<std::uint32_t> forks{
      0};  ///< number of forks between the first process and this one
  std::uint32_t made_at_ = forks.load(std::memory_order_relaxed);
};

}  // namespace tutti
