// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cache_line.hpp"

#include <atomic>
#include <cstdint>

namespace tutti {

/// Counts how often threads of this process waited for work of a device, or found it done. Whoever looked for
/// finished work and found none need not look again before somebody has.
class HostWaits {
 public:
  static void count_one() noexcept { counter.count.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] static std::uint64_t counted() noexcept {
    return counter.count.load(std::memory_order_relaxed);
  }

 private:
  struct alignas(cache_line_bytes) Alone {
    std::atomic<std::uint64_t> count;
  };
  static inline Alone counter;
};

}  // namespace tutti
