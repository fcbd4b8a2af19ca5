// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/block_layout.hpp"
#include "allocator/blocks/block_pool.hpp"
#include "allocator/blocks/shareable_memory.hpp"

#include <algorithm>
#include <vector>

/// Adds segments to a block pool and removes them.
namespace tutti {

void BlockPool::add_segment(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                            GraphPool graph_pool) {
  reserve_blocks(1);
  Segment& segment = enter_segment(address, bytes, pool, stream, graph_pool);
  try {
    segment.starts.assign(bytes / block_layout::granule(pool), nullptr);
  } catch (...) {
    remove(segment);
    throw;
  }
  Block& block = new_block();
  block.segment = &segment;
  block.address = address;
  block.bytes = bytes;
  segment.first = &block;
  block_layout::start_of(segment, address) = &block;
  put_into_cache(block);
  counts_.increase(Quantity::reserved_bytes, pool, bytes);
  count_parts(segment, 1);
}

Segment& BlockPool::enter_segment(std::byte* address, std::size_t bytes, MemoryPool pool,
                                  backend::StreamRef stream, GraphPool graph_pool) {
  StreamBlocks& cache = cache_with_room(stream, graph_pool, pool);
  ++cache.segments;
  Segment* segment = nullptr;
  try {
    segment = &new_segment();
    segment->address = address;
    segment->bytes = bytes;
    segment->pool = pool;
    segment->stream = stream;
    segment->graph_pool = graph_pool;
    segment->cache = &cache;
    segment->is_expandable = false;
    segment->hole_count = 0;
    segment->holes.clear();
    segments_.emplace(address, segment);
    if (index_ != nullptr) index_->add(*segment);
  } catch (...) {
    segments_.erase(address);
    if (segment != nullptr) spare_segments_.push_back(segment);
    leave(cache);
    throw;
  }
  return *segment;
}

void BlockPool::remove(Segment& segment) noexcept {
  if (index_ != nullptr) index_->remove(segment);
  leave(*segment.cache);
  segments_.erase(segment.address);
  segment.first = nullptr;
  segment.starts.clear();  // a lookup that found the segment before finds nothing in it now
  spare_segments_.push_back(&segment);
}

void BlockPool::count_parts(const Segment& segment, int more) noexcept {
  if (more > 0) {
    counts_.increase(Quantity::segment, segment.pool, static_cast<std::size_t>(more));
    counts_.num_device_alloc += more;
  } else {
    counts_.decrease(Quantity::segment, segment.pool, static_cast<std::size_t>(-more));
    counts_.num_device_free -= more;
  }
}

Block* BlockPool::cached_whole(const Segment& segment) noexcept {
  if (segment.is_expandable) return nullptr;
  Block* const first = segment.first;
  return first->state == BlockState::cached && !block_layout::is_part(*first) ? first : nullptr;
}

std::vector<int> BlockPool::devices_of_cached_segments() const {
  std::vector<int> devices;
  for (const auto& [address, segment] : segments_) {
    if (cached_whole(*segment) == nullptr && !has_cached_pages(*segment)) continue;
    for (const int device : {device_, segment->stream.device}) {
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    }
  }
  return devices;
}

bool BlockPool::is_unwaited(const Segment& segment, std::span<const int> unwaited) const noexcept {
  return std::ranges::count(unwaited, device_) + std::ranges::count(unwaited, segment.stream.device) > 0;
}

std::vector<Segment> BlockPool::remove_segments_cached_before(Moment moment, std::size_t bytes,
                                                              std::span<const int> unwaited) {
  std::vector<Segment*> candidates;
  for (const auto& [address, segment] : segments_) {
    const Block* const whole = cached_whole(*segment);
    if (whole != nullptr && whole->cached_since < moment &&
        unmarked(segment->graph_pool) == GraphPool::none && !is_unwaited(*segment, unwaited))
      candidates.push_back(segment);
  }
  std::ranges::stable_sort(candidates, {},
                           [](const Segment* segment) { return segment->first->cached_since; });
  std::vector<Segment> removed;
  removed.reserve(candidates.size());
  std::size_t removed_bytes = 0;
  for (Segment* const segment : candidates) {
    if (removed_bytes >= bytes) break;
    removed_bytes += segment->bytes;
    Block& whole = *segment->first;
    take_out_of_cache(whole);
    discard(whole);
    counts_.decrease(Quantity::reserved_bytes, segment->pool, segment->bytes);
    count_parts(*segment, -1);
    Segment& gone = removed.emplace_back();
    gone.address = segment->address;
    gone.bytes = segment->bytes;
    gone.pool = segment->pool;
    gone.stream = segment->stream;
    gone.graph_pool = segment->graph_pool;
    remove(*segment);
  }
  return removed;
}

Segment& BlockPool::new_segment() {
  spare_segments_.reserve(segment_store_.size() + 1);
  if (spare_segments_.empty()) {
    Segment& segment = segment_store_.emplace_back();
    segment.device = device_;
    return segment;
  }
  Segment& segment = *spare_segments_.back();
  spare_segments_.pop_back();
  return segment;
}

}  // namespace tutti
