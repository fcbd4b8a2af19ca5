// SPDX-License-Identifier: Apache-2.0
#include "allocator/caching_allocator.hpp"
#include "base/rounding.hpp"
#include "settings/log.hpp"

#include <atomic>
#include <mutex>
#include <span>
#include <vector>

#include <fmt/format.h>

/// Maps memory of the caching allocator to ranges of addresses, and unmaps it.
namespace tutti {

bool CachingAllocator::can_expand() {
  if (!settings_.has_expandable_segments) return false;
  if (!can_expand_) {
    const std::size_t unit = backend_.page_bytes(device_);
    const auto fits = [unit](MemoryPool pool) { return BlockPool::page_bytes(pool) % unit == 0; };
    can_expand_ = unit != 0 && fits(MemoryPool::small_pool) && fits(MemoryPool::large_pool);
    static std::atomic<bool> has_warned{false};
    if (!*can_expand_ && !has_warned.exchange(true)) {
      log_warning(
          fmt::format("TUTTI_ALLOC_CONF: the driver of device {} does not allow expandable_segments, so "
                      "that segments are ordinary ones",
                      device_));
    }
  }
  return *can_expand_;
}

bool CachingAllocator::add_range(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool) {
  const MemoryPool pool = BlockPool::pool_of(bytes);
  const std::size_t page = BlockPool::page_bytes(pool);
  const std::size_t range_bytes = round_up(backend_.properties(device_).total_memory, page);
  if (bytes > range_bytes) return false;  // then the device has not enough either
  void* const address = backend_.reserve_addresses(device_, range_bytes);
  if (address == nullptr) return false;
  const std::lock_guard lock(mutex_);
  try {
    pool_->add_range(static_cast<std::byte*>(address), range_bytes, pool, stream, graph_pool);
  } catch (...) {
    backend_.release_addresses(device_, address, range_bytes);
    throw;
  }
  return true;
}

bool CachingAllocator::map(const BlockPool::Gap& gap, std::size_t page) {
  std::size_t mapped = 0;
  const auto undo = [&] {
    if (mapped > 0) backend_.unmap_pages(device_, gap.address, mapped);
  };
  try {
    for (; mapped < gap.bytes; mapped += page) {
      if (backend_.map_pages(device_, gap.address + mapped, page)) continue;
      undo();
      return false;
    }
  } catch (...) {
    undo();
    throw;
  }
  return true;
}

void CachingAllocator::unmap(GrowthLock& growth, const std::vector<Block*>& holes) noexcept {
  if (holes.empty()) return;
  await_closes(growth, holes);
  // Nobody else changes a hole that is not closed.
  growth.let_go_to_return([&] {
    for (const Block* const hole : holes) backend_.unmap_pages(device_, hole->address, hole->bytes);
  });
  for (Block* const hole : holes) {
    std::optional<std::span<std::byte>> empty_range;
    {
      const std::lock_guard lock(mutex_);
      empty_range = pool_->close(*hole);
    }
    if (empty_range) backend_.release_addresses(device_, empty_range->data(), empty_range->size());
  }
}

}  // namespace tutti
