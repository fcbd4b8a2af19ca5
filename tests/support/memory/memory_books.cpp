// SPDX-License-Identifier: Apache-2.0
#include "support/memory/memory_books.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::test {
namespace {

/// One value for each kind of statistic.
struct Sums {
  std::int64_t allocation = 0;
  std::int64_t segment = 0;
  std::int64_t active = 0;
  std::int64_t inactive_split = 0;
  std::int64_t allocated_bytes = 0;
  std::int64_t reserved_bytes = 0;
  std::int64_t active_bytes = 0;
  std::int64_t inactive_split_bytes = 0;
  std::int64_t requested_bytes = 0;

  void add(const MemorySegment& of);
};

struct Statistic {
  const char* name;
  std::int64_t Sums::*sum;
  PooledCounter MemoryStats::*counter;
};

constexpr Statistic statistics[] = {
    {"allocation", &Sums::allocation, &MemoryStats::allocation},
    {"segment", &Sums::segment, &MemoryStats::segment},
    {"active", &Sums::active, &MemoryStats::active},
    {"inactive_split", &Sums::inactive_split, &MemoryStats::inactive_split},
    {"allocated_bytes", &Sums::allocated_bytes, &MemoryStats::allocated_bytes},
    {"reserved_bytes", &Sums::reserved_bytes, &MemoryStats::reserved_bytes},
    {"active_bytes", &Sums::active_bytes, &MemoryStats::active_bytes},
    {"inactive_split_bytes", &Sums::inactive_split_bytes, &MemoryStats::inactive_split_bytes},
    {"requested_bytes", &Sums::requested_bytes, &MemoryStats::requested_bytes},
};

void Sums::add(const MemorySegment& of) {
  segment += 1;
  reserved_bytes += static_cast<std::int64_t>(of.bytes);
  for (const MemoryBlock& block : of.blocks) {
    const auto bytes = static_cast<std::int64_t>(block.bytes);
    if (block.state == BlockState::in_use) {
      allocation += 1;
      allocated_bytes += bytes;
      requested_bytes += static_cast<std::int64_t>(block.requested_bytes);
    }
    if (block.state != BlockState::cached) {
      active += 1;
      active_bytes += bytes;
    } else if (block.bytes != of.bytes) {
      inactive_split += 1;
      inactive_split_bytes += bytes;
    }
  }
}

testing::AssertionResult consistent(const char* name, const char* pool, const MemoryCounter& counter,
                                    std::int64_t sum) {
  if (counter.current != sum) {
    return testing::AssertionFailure()
           << name << " of " << pool << " is " << counter.current << ", but the snapshot has " << sum;
  }
  if (counter.current != counter.allocated - counter.freed || counter.peak < counter.current ||
      counter.freed < 0) {
    return testing::AssertionFailure()
           << name << " of " << pool << ": current " << counter.current << ", peak " << counter.peak
           << ", allocated " << counter.allocated << ", freed " << counter.freed;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult without_gaps(const MemorySegment& segment) {
  const auto* expected = static_cast<const std::byte*>(segment.address);
  const MemoryBlock* previous = nullptr;
  for (const MemoryBlock& block : segment.blocks) {
    if (block.address != expected) return testing::AssertionFailure() << "a gap before " << block.address;
    if (block.bytes == 0 || block.bytes % 512 != 0 || block.requested_bytes > block.bytes) {
      return testing::AssertionFailure()
             << "a block of " << block.bytes << " bytes for " << block.requested_bytes;
    }
    if (previous != nullptr && previous->state == BlockState::cached && block.state == BlockState::cached) {
      return testing::AssertionFailure() << "neighbours both cached at " << block.address;
    }
    expected += block.bytes;
    previous = &block;
  }
  if (expected != static_cast<const std::byte*>(segment.address) + segment.bytes) {
    return testing::AssertionFailure() << "blocks do not fill the segment at " << segment.address;
  }
  return testing::AssertionSuccess();
}

}  // namespace

testing::AssertionResult books_balance(const MemoryStats& stats, const std::vector<MemorySegment>& segments) {
  Sums all;
  Sums small;
  Sums large;
  for (const MemorySegment& segment : segments) {
    if (auto result = without_gaps(segment); !result) return result;
    all.add(segment);
    (segment.pool == MemoryPool::small_pool ? small : large).add(segment);
  }
  for (const Statistic& statistic : statistics) {
    const PooledCounter& counter = stats.*statistic.counter;
    if (auto result = consistent(statistic.name, "all", counter.all, all.*statistic.sum); !result)
      return result;
    if (auto result = consistent(statistic.name, "small_pool", counter.small_pool, small.*statistic.sum);
        !result)
      return result;
    if (auto result = consistent(statistic.name, "large_pool", counter.large_pool, large.*statistic.sum);
        !result)
      return result;
  }
  if (stats.num_device_alloc - stats.num_device_free != all.segment) {
    return testing::AssertionFailure()
           << stats.num_device_alloc << " segments obtained and " << stats.num_device_free
           << " given back, but there are " << all.segment;
  }
  return testing::AssertionSuccess();
}

std::uint64_t graph_pool_of(const TensorView& tensor) {
  const auto* const address = static_cast<const std::byte*>(tensor.data());
  for (const MemorySegment& segment : memory_snapshot()) {
    const auto* const first = static_cast<const std::byte*>(segment.address);
    if (address >= first && address < first + segment.bytes) return segment.graph_pool;
  }
  return 0;
}

}  // namespace tutti::test
