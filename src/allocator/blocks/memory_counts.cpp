// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/memory_counts.hpp"

namespace tutti {
namespace {

/// In the order of `Quantity`.
constexpr std::array pooled_counters = {
    &MemoryStats::allocation,      &MemoryStats::segment,
    &MemoryStats::active,          &MemoryStats::inactive_split,
    &MemoryStats::allocated_bytes, &MemoryStats::reserved_bytes,
    &MemoryStats::active_bytes,    &MemoryStats::inactive_split_bytes,
    &MemoryStats::requested_bytes,
};

}  // namespace

void MemoryCounts::repeat_since(const Figures& earlier, MemoryPool pool, std::size_t times) noexcept {
  Figures& allocated = of(pool).allocated;
  for (std::size_t index = 0; index < quantities; ++index)
    allocated[index] += static_cast<std::int64_t>(times) * (allocated[index] - earlier[index]);
}

MemoryStats MemoryCounts::stats() const noexcept {
  static_assert(pooled_counters.size() == quantities);
  MemoryStats stats;
  for (std::size_t index = 0; index < quantities; ++index) {
    const auto read = [index](const Counts& counts) {
      MemoryCounter counter;
      counter.current = counts.current[index];
      counter.peak = counts.peak[index];
      counter.allocated = counts.allocated[index];
      counter.freed = counts.allocated[index] - counts.current[index] - counts.freed_offset[index];
      return counter;
    };
    PooledCounter& counter = stats.*pooled_counters[index];
    counter.small_pool = read(small_);
    counter.large_pool = read(large_);
    counter.all.current = counter.small_pool.current + counter.large_pool.current;
    counter.all.peak = peak_of_all_[index];
    counter.all.allocated = counter.small_pool.allocated + counter.large_pool.allocated;
    counter.all.freed = counter.small_pool.freed + counter.large_pool.freed;
  }
  stats.num_alloc_retries = num_alloc_retries;
  stats.num_ooms = num_ooms;
  stats.num_device_alloc = num_device_alloc;
  stats.num_device_free = num_device_free;
  return stats;
}

void MemoryCounts::reset_peaks() noexcept {
  small_.peak = small_.current;
  large_.peak = large_.current;
  for (std::size_t index = 0; index < quantities; ++index)
    peak_of_all_[index] = small_.current[index] + large_.current[index];
}

void MemoryCounts::reset_accumulated() noexcept {
  for (Counts* counts : {&small_, &large_}) {
    counts->allocated.fill(0);
    // From now on `allocated - current` is what has been freed since, less what was there at this moment.
    for (std::size_t index = 0; index < quantities; ++index)
      counts->freed_offset[index] = -counts->current[index];
  }
  num_alloc_retries = 0;
  num_ooms = 0;
  num_device_alloc = 0;
  num_device_free = 0;
}

}  // namespace tutti
