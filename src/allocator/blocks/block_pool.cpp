// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/block_pool.hpp"

#include "allocator/blocks/block_layout.hpp"
#include "allocator/blocks/shareable_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti {

BlockPool::~BlockPool() {
  if (index_ == nullptr) return;
  for (const auto& [address, segment] : segments_) index_->remove(*segment);
}

MemoryPool BlockPool::pool_of(std::size_t requested_bytes) noexcept {
  return block_layout::pool_for(block_layout::block_bytes(requested_bytes));
}

std::size_t BlockPool::segment_bytes(std::size_t requested_bytes) noexcept {
  const std::size_t bytes = block_layout::block_bytes(requested_bytes);
  if (bytes <= block_layout::largest_small_request) return block_layout::small_segment;
  if (bytes < block_layout::smallest_own_segment) return block_layout::large_segment;
  return round_up(bytes, block_layout::own_segment_rounding);
}

StreamBlocks* BlockPool::cache_of(backend::StreamRef stream, GraphPool graph_pool) noexcept {
  const auto serves = [&](const StreamBlocks* cache) {
    return cache->stream == stream && cache->graph_pool == graph_pool;
  };
  if (last_cache_ != nullptr && serves(last_cache_)) [[likely]]
    return last_cache_;
  for (const auto& cache : caches_) {
    if (serves(cache.get())) return last_cache_ = cache.get();
  }
  return nullptr;
}

StreamBlocks& BlockPool::cache_with_room(backend::StreamRef stream, GraphPool graph_pool, MemoryPool pool) {
  if (StreamBlocks* const known = cache_of(stream, graph_pool)) {
    known->of(pool).make_room();
    return *known;
  }
  auto fresh = std::make_unique<StreamBlocks>();
  fresh->stream = stream;
  fresh->graph_pool = graph_pool;
  fresh->of(pool).make_room();
  return *caches_.emplace_back(std::move(fresh));
}

void BlockPool::leave(StreamBlocks& cache) noexcept {
  if (--cache.segments > 0) return;
  if (last_cache_ == &cache) last_cache_ = nullptr;
  std::erase_if(caches_, [&](const auto& other) { return other.get() == &cache; });
}

bool BlockPool::may_serve(std::size_t whole, std::size_t bytes) const noexcept {
  return whole < max_split_bytes_ ||
         (bytes >= max_split_bytes_ && whole - bytes < block_layout::large_segment);
}

bool BlockPool::may_serve_request(std::size_t whole, std::size_t requested_bytes) const noexcept {
  return whole >= block_layout::block_bytes(requested_bytes) &&
         may_serve(whole, block_layout::block_bytes(requested_bytes));
}

Block* BlockPool::take(std::size_t requested_bytes, backend::StreamRef stream, GraphPool graph_pool) {
  const std::size_t bytes = block_layout::block_bytes(requested_bytes);
  const MemoryPool pool = block_layout::pool_for(bytes);
  StreamBlocks* const cache = cache_of(stream, graph_pool);
  Block* const found = cache == nullptr ? nullptr : cache->of(pool).best_fit(bytes);
  if (found == nullptr) return nullptr;
  // Blocks of ranges are always cut: what is left over can go back by itself.
  const bool may_cut = found->bytes < max_split_bytes_ || found->segment->is_expandable;
  if (!may_cut && !may_serve(found->bytes, bytes)) return nullptr;

  Block& block = *found;
  if (block_layout::worth_cutting(pool, block.bytes - bytes) && may_cut) {
    split(block, bytes);
  } else {
    take_out_of_cache(block);
  }
  block.state = BlockState::in_use;
  block.requested_bytes = requested_bytes;
  counts_.increase(Quantity::allocation, pool, 1);
  counts_.increase(Quantity::allocated_bytes, pool, block.bytes);
  counts_.increase(Quantity::requested_bytes, pool, requested_bytes);
  counts_.increase(Quantity::active, pool, 1);
  counts_.increase(Quantity::active_bytes, pool, block.bytes);
  return &block;
}

void BlockPool::release(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  counts_.decrease(Quantity::allocation, pool, 1);
  counts_.decrease(Quantity::allocated_bytes, pool, block.bytes);
  counts_.decrease(Quantity::requested_bytes, pool, block.requested_bytes);
  block.requested_bytes = 0;
  block.is_raw = false;
  block.state = BlockState::awaiting_free;
}

void BlockPool::give_back(Block& released) noexcept {
  const MemoryPool pool = released.segment->pool;
  counts_.decrease(Quantity::active, pool, 1);
  counts_.decrease(Quantity::active_bytes, pool, released.bytes);
  cache(released);
}

void BlockPool::cache(Block& idle) noexcept {
  Block* block = &idle;
  if (block->next != nullptr && block->next->state == BlockState::cached) {
    take_out_of_cache(*block->next);
    absorb_next(*block);
  }
  if (block->previous != nullptr && block->previous->state == BlockState::cached) {
    block = block->previous;
    take_out_of_cache(*block);
    absorb_next(*block);
  }
  put_into_cache(*block);
}

bool BlockPool::has_segments_of(GraphPool graph_pool) const {
  return std::ranges::any_of(caches_,
                             [&](const auto& cache) { return unmarked(cache->graph_pool) == graph_pool; });
}

void BlockPool::dissolve(GraphPool graph_pool) noexcept {
  for (std::size_t i = 0; i < caches_.size();) {
    StreamBlocks& graphs = *caches_[i];
    if (unmarked(graphs.graph_pool) != graph_pool) {
      ++i;
      continue;
    }
    const GraphPool next = is_shareable(graphs.graph_pool) ? shareable(GraphPool::none) : GraphPool::none;
    StreamBlocks* const everybodys = cache_of(graphs.stream, next);
    if (everybodys == nullptr) {  // then it becomes that
      for (auto& [address, segment] : segments_) {
        if (segment->cache == &graphs) segment->graph_pool = next;
      }
      graphs.graph_pool = next;
      ++i;
      continue;
    }
    everybodys->small.take_all(graphs.small);
    everybodys->large.take_all(graphs.large);
    for (auto& [address, segment] : segments_) {
      if (segment->cache != &graphs) continue;
      segment->graph_pool = next;
      segment->cache = everybodys;
      ++everybodys->segments;
      --graphs.segments;
    }
    ++graphs.segments;
    leave(graphs);  // erases it
  }
}

Segment* BlockPool::segment_around(const void* address) {
  const auto* target = static_cast<const std::byte*>(address);
  if (index_ != nullptr) {
    Segment* const segment = index_->find(address);
    const bool contains = segment != nullptr && segment->device == device_ &&
                          static_cast<std::size_t>(target - segment->address) < segment->bytes;
    return contains ? segment : nullptr;
  }
  const auto entry = segments_.upper_bound(target);
  if (entry == segments_.begin()) return nullptr;
  Segment& segment = *std::prev(entry)->second;
  return static_cast<std::size_t>(target - segment.address) < segment.bytes ? &segment : nullptr;
}

Block* BlockPool::find(const void* address) {
  Segment* const around = segment_around(address);
  if (around == nullptr) return nullptr;
  Segment& segment = *around;
  const auto* target = static_cast<const std::byte*>(address);
  const auto offset = static_cast<std::size_t>(target - segment.address);

  // A block starting later in the same granule does not contain the address: the one before it does, unless
  // it lies in a hole.
  std::size_t index = offset / block_layout::granule(segment.pool);
  if (index >= segment.starts.size()) return nullptr;
  while (segment.starts[index] == nullptr || segment.starts[index]->address > target) {
    if (index == 0) return nullptr;
    --index;
  }
  Block* block = segment.starts[index];
  return block->state == BlockState::in_use && target < block->address + block->bytes ? block : nullptr;
}

Block* BlockPool::find_start(Segment& segment, const void* address) noexcept {
  const auto* target = static_cast<const std::byte*>(address);
  const std::size_t index =
      static_cast<std::size_t>(target - segment.address) / block_layout::granule(segment.pool);
  if (index >= segment.starts.size()) return nullptr;  // which is empty if the segment is gone
  Block* const block = segment.starts[index];
  const bool is_meant = block != nullptr && block->address == target && block->state == BlockState::in_use;
  return is_meant ? block : nullptr;
}

std::vector<MemorySegment> BlockPool::snapshot() const {
  std::vector<MemorySegment> result;
  result.reserve(segments_.size());
  for (const auto& [address, known] : segments_) {
    const Segment& segment = *known;
    for (const Block* block = segment.first; block != nullptr; block = block->next) {
      if (block->is_hole) continue;
      if (!block_layout::has_memory(block->previous)) {
        MemorySegment& part = result.emplace_back();
        part.device = device_;
        part.address = block->address;
        part.pool = segment.pool;
        part.graph_pool = static_cast<std::uint64_t>(unmarked(segment.graph_pool));
        part.stream = segment.stream.handle;
        part.stream_device = segment.stream.device;
        part.is_expandable = segment.is_expandable;
      }
      result.back().bytes += block->bytes;
      result.back().blocks.push_back({block->address, block->bytes, block->requested_bytes, block->state});
    }
  }
  return result;
}

Block& BlockPool::new_block() {
  if (spare_ != nullptr) {
    Block& block = *spare_;
    spare_ = block.next;
    block.next = nullptr;
    return block;
  }
  return blocks_.emplace_back();
}

void BlockPool::reserve_blocks(std::size_t count) {
  for (const Block* spare = spare_; count > 0 && spare != nullptr; spare = spare->next) --count;
  for (; count > 0; --count) discard(blocks_.emplace_back());
}

void BlockPool::discard(Block& block) noexcept {
  block.is_hole = false;
  block.segment = nullptr;
  block.previous = nullptr;
  block.next = spare_;
  spare_ = &block;
}

void BlockPool::put_into_cache(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  block.state = BlockState::cached;
  block.cached_since = moment_;
  block.is_split = block_layout::is_part(block);
  if (block.is_split) {
    counts_.increase(Quantity::inactive_split, pool, 1);
    counts_.increase(Quantity::inactive_split_bytes, pool, block.bytes);
  }
  block.segment->cache->of(pool).insert(block);
}

void BlockPool::take_out_of_cache(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  if (block.is_split) {
    counts_.decrease(Quantity::inactive_split, pool, 1);
    counts_.decrease(Quantity::inactive_split_bytes, pool, block.bytes);
  }
  block.segment->cache->of(pool).remove(block);
}

void BlockPool::split(Block& block, std::size_t bytes) {
  Block& rest = new_block();  // first, as it may throw
  take_out_of_cache(block);
  rest.segment = block.segment;
  rest.address = block.address + bytes;
  rest.bytes = block.bytes - bytes;
  rest.previous = &block;
  rest.next = block.next;
  if (rest.next != nullptr) rest.next->previous = &rest;
  block_layout::start_of(*rest.segment, rest.address) = &rest;
  block.next = &rest;
  block.bytes = bytes;
  put_into_cache(rest);
  rest.cached_since = block.cached_since;  // nobody has used it since then
}

void BlockPool::absorb_next(Block& block) noexcept {
  Block& absorbed = *block.next;
  block_layout::start_of(*absorbed.segment, absorbed.address) = nullptr;
  block.bytes += absorbed.bytes;
  block.next = absorbed.next;
  if (block.next != nullptr) block.next->previous = &block;
  discard(absorbed);
}

}  // namespace tutti
