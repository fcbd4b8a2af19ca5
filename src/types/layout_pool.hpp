// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/layout.hpp"

#include <atomic>
#include <cstddef>
#include <vector>

namespace tutti {

/// Layouts to share among all tensors that have them. Programs use few: the pool keeps what it has been asked
/// for until it is full, and never lets go. So its layouts need no counting, which is half the time of
/// letting results by the thousand go, and equal ones are one object, which is found in the caches and told
/// equal by its address. Thread-safe, without locks.
class LayoutPool {
 public:
  /// With room for `capacity` layouts.
  explicit LayoutPool(std::size_t capacity);
  LayoutPool(const LayoutPool&) = delete;
  LayoutPool& operator=(const LayoutPool&) = delete;
  /// No tensor has one of the pool's layouts any more.
  ~LayoutPool();

  /// The process's own, which outlives every tensor. Grows to 1 MiB at most.
  [[nodiscard]] static LayoutPool& get();

  /// The pool's layout of just these sizes, strides and element type, or if the pool has none and no room, a
  /// new one of its own.
  [[nodiscard]] LayoutPtr find_or_make(const Layout& wanted);

 private:
  std::size_t capacity_;
  std::atomic<std::size_t> count_{0};
  std::vector<std::atomic<const Layout*>> slots_;  ///< a hash table with open addressing, half full at most
};

}  // namespace tutti
