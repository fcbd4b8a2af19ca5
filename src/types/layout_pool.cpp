// SPDX-License-Identifier: Apache-2.0
#include "types/layout_pool.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

namespace tutti {
namespace {

/// Compares layouts exactly: strides of dimensions of size 1 count, too, because the caller chose them.
bool is_identical(const Layout& a, const Layout& b) {
  return a.dtype() == b.dtype() && std::ranges::equal(a.sizes(), b.sizes()) &&
         std::ranges::equal(a.strides(), b.strides());
}

std::size_t hash_of(const Layout& layout) {
  constexpr std::uint64_t multiplier = 0x9e3779b97f4a7c15U;  // 2^64 divided by the golden ratio
  constexpr int half = 32;
  std::uint64_t hash = static_cast<std::uint64_t>(layout.dtype());
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * multiplier;
    hash ^= hash >> half;
  };
  for (const std::int64_t size : layout.sizes()) mix(size);
  // Most layouts are contiguous, and these are distinguished by their sizes.
  if (!layout.is_contiguous()) {
    for (const std::int64_t stride : layout.strides()) mix(stride);
  }
  return hash;
}

}  // namespace

LayoutPool::LayoutPool(std::size_t capacity) : capacity_(capacity), slots_(std::bit_ceil(2 * capacity)) {}

LayoutPool::~LayoutPool() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

LayoutPool& LayoutPool::get() {
  constexpr std::size_t capacity = 4096;
  static LayoutPool& pool = *new LayoutPool(capacity);
  return pool;
}

LayoutPtr LayoutPool::find_or_make(const Layout& wanted) {
  std::unique_ptr<Layout> made;
  for (std::size_t slot = hash_of(wanted);; ++slot) {
    std::atomic<const Layout*>& entry = slots_[slot & (slots_.size() - 1)];
    const Layout* known = entry.load(std::memory_order_acquire);
    if (known == nullptr) {
      if (made == nullptr) {
        made = std::make_unique<Layout>(wanted.dtype(), wanted.sizes(), wanted.strides());
        if (count_.fetch_add(1, std::memory_order_relaxed) >= capacity_) {
          count_.fetch_sub(1, std::memory_order_relaxed);
          return LayoutPtr::adopt(made.release());
        }
        made->make_permanent();
      }
      if (entry.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel)) {
        return LayoutPtr::adopt(made.release());
      }
    }
    // Present before, or inserted by another thread just now.
    if (!is_identical(*known, wanted)) continue;
    if (made != nullptr) count_.fetch_sub(1, std::memory_order_relaxed);
    return LayoutPtr::adopt(known);
  }
}

}  // namespace tutti
