// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>

namespace tutti {

inline constexpr std::size_t cache_line_bytes = 64;

/// Allocates memory that shares no cache line with other allocations. Containers that different threads write
/// to at the same time use it to avoid false sharing.
template <class T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <class Other>
  CacheLineAllocator(const CacheLineAllocator<Other>& /*other*/) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(bytes_for(count), std::align_val_t(cache_line_bytes)));
  }
  void deallocate(T* memory, std::size_t /*count*/) noexcept {
    ::operator delete(memory, std::align_val_t(cache_line_bytes));
  }
  template <class Other>
  friend bool operator==(const CacheLineAllocator& /*a*/, const CacheLineAllocator<Other>& /*b*/) noexcept {
    return true;
  }

 private:
  [[nodiscard]] static constexpr std::size_t bytes_for(std::size_t count) noexcept {
    return (count * sizeof(T) + cache_line_bytes - 1) / cache_line_bytes * cache_line_bytes;
  }
};

}  // namespace tutti
