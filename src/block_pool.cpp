// SPDX-License-Identifier: Apache-2.0
#include "block_pool.hpp"

#include "backend/rounding.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;

constexpr std::size_t smallest_block = 512;
constexpr std::size_t largest_small_request = mebibyte;
constexpr std::size_t small_segment = 2 * mebibyte;
constexpr std::size_t smallest_own_segment =
    10 * mebibyte;  // requests from here on are not cut from a shared segment
constexpr std::size_t large_segment = 20 * mebibyte;
constexpr std::size_t own_segment_rounding = 2 * mebibyte;

constexpr std::size_t block_bytes(std::size_t requested_bytes) noexcept {
  return std::max(smallest_block, round_up(requested_bytes, smallest_block));
}

constexpr MemoryPool pool_for(std::size_t block_bytes) noexcept {
  return block_bytes <= largest_small_request ? MemoryPool::small_pool : MemoryPool::large_pool;
}

/// What must be left over for a block to be cut. It also bounds the blocks of a pool from below: those of the
/// large pool are longer than `largest_small_request`.
constexpr bool worth_cutting(MemoryPool pool, std::size_t rest) noexcept {
  return pool == MemoryPool::small_pool ? rest >= smallest_block : rest > largest_small_request;
}

constexpr std::size_t granule(MemoryPool pool) noexcept {
  return pool == MemoryPool::small_pool ? smallest_block : largest_small_request;
}

Block*& start_of(Segment& segment, const std::byte* address) noexcept {
  return segment.starts[static_cast<std::size_t>(address - segment.address) / granule(segment.pool)];
}

bool is_part(const Block& block) noexcept {
  return block.bytes != block.segment->bytes;
}

}  // namespace

BlockPool::~BlockPool() {
  if (index_ == nullptr) return;
  for (const auto& [address, segment] : segments_) index_->remove(*segment);
}

MemoryPool BlockPool::pool_of(std::size_t requested_bytes) noexcept {
  return pool_for(block_bytes(requested_bytes));
}

std::size_t BlockPool::segment_bytes(std::size_t requested_bytes) noexcept {
  const std::size_t bytes = block_bytes(requested_bytes);
  if (bytes <= largest_small_request) return small_segment;
  if (bytes < smallest_own_segment) return large_segment;
  return round_up(bytes, own_segment_rounding);
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
  return whole < max_split_bytes_ || (bytes >= max_split_bytes_ && whole - bytes < large_segment);
}

bool BlockPool::may_serve_request(std::size_t whole, std::size_t requested_bytes) const noexcept {
  return whole >= block_bytes(requested_bytes) && may_serve(whole, block_bytes(requested_bytes));
}

Block* BlockPool::take(std::size_t requested_bytes, backend::StreamRef stream, GraphPool graph_pool) {
  const std::size_t bytes = block_bytes(requested_bytes);
  const MemoryPool pool = pool_for(bytes);
  StreamBlocks* const cache = cache_of(stream, graph_pool);
  Block* const found = cache == nullptr ? nullptr : cache->of(pool).best_fit(bytes);
  if (found == nullptr || !may_serve(found->bytes, bytes)) return nullptr;

  Block& block = *found;
  if (worth_cutting(pool, block.bytes - bytes) && block.bytes < max_split_bytes_) {
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

void BlockPool::add_segment(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                            GraphPool graph_pool) {
  StreamBlocks& cache = cache_with_room(stream, graph_pool, pool);
  ++cache.segments;
  Segment* segment = nullptr;
  Block* block = nullptr;
  try {
    segment = &new_segment();
    segment->address = address;
    segment->bytes = bytes;
    segment->pool = pool;
    segment->stream = stream;
    segment->graph_pool = graph_pool;
    segment->cache = &cache;
    segment->starts.assign(bytes / granule(pool), nullptr);
    block = &new_block();
    segments_.emplace(address, segment);
    if (index_ != nullptr) index_->add(*segment);
  } catch (...) {
    segments_.erase(address);
    if (block != nullptr) discard(*block);
    if (segment != nullptr) spare_segments_.push_back(segment);
    leave(cache);
    throw;
  }
  block->segment = segment;
  block->address = address;
  block->bytes = bytes;
  start_of(*segment, address) = block;
  put_into_cache(*block);
  counts_.increase(Quantity::segment, pool, 1);
  counts_.increase(Quantity::reserved_bytes, pool, bytes);
  ++counts_.num_device_alloc;
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

  Block* block = &released;
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
  return std::ranges::any_of(caches_, [&](const auto& cache) { return cache->graph_pool == graph_pool; });
}

void BlockPool::dissolve(GraphPool graph_pool) noexcept {
  for (std::size_t i = 0; i < caches_.size();) {
    StreamBlocks& graphs = *caches_[i];
    if (graphs.graph_pool != graph_pool) {
      ++i;
      continue;
    }
    StreamBlocks* const everybodys = cache_of(graphs.stream, GraphPool::none);
    if (everybodys == nullptr) {  // then it becomes that
      for (auto& [address, segment] : segments_) {
        if (segment->cache == &graphs) segment->graph_pool = GraphPool::none;
      }
      graphs.graph_pool = GraphPool::none;
      ++i;
      continue;
    }
    everybodys->small.take_all(graphs.small);
    everybodys->large.take_all(graphs.large);
    for (auto& [address, segment] : segments_) {
      if (segment->cache != &graphs) continue;
      segment->graph_pool = GraphPool::none;
      segment->cache = everybodys;
      ++everybodys->segments;
      --graphs.segments;
    }
    ++graphs.segments;
    leave(graphs);  // erases it
  }
}

Block* BlockPool::cached_whole(const Segment& segment) noexcept {
  Block* const first = segment.starts.front();
  return first->state == BlockState::cached && !is_part(*first) ? first : nullptr;
}

std::vector<int> BlockPool::devices_of_cached_segments() const {
  std::vector<int> devices;
  for (const auto& [address, segment] : segments_) {
    if (cached_whole(*segment) == nullptr) continue;
    for (const int device : {device_, segment->stream.device}) {
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    }
  }
  return devices;
}

std::vector<Segment> BlockPool::remove_segments_cached_before(Moment moment, std::size_t bytes,
                                                              std::span<const int> unwaited) {
  const auto is_waited = [&](int device) { return std::ranges::count(unwaited, device) == 0; };
  std::vector<Segment*> candidates;
  for (const auto& [address, segment] : segments_) {
    if (cached_whole(*segment) != nullptr && segment->cached_since < moment &&
        segment->graph_pool == GraphPool::none && is_waited(device_) && is_waited(segment->stream.device))
      candidates.push_back(segment);
  }
  std::ranges::stable_sort(candidates, {}, &Segment::cached_since);
  std::vector<Segment> removed;
  removed.reserve(candidates.size());
  std::size_t removed_bytes = 0;
  for (Segment* const segment : candidates) {
    if (removed_bytes >= bytes) break;
    removed_bytes += segment->bytes;
    Block& whole = *segment->starts.front();
    take_out_of_cache(whole);
    discard(whole);
    counts_.decrease(Quantity::segment, segment->pool, 1);
    counts_.decrease(Quantity::reserved_bytes, segment->pool, segment->bytes);
    ++counts_.num_device_free;
    if (index_ != nullptr) index_->remove(*segment);
    leave(*segment->cache);
    segments_.erase(segment->address);
    removed.push_back(std::move(*segment));
    spare_segments_.push_back(segment);
  }
  return removed;
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

  // A block starting later in the same granule does not contain the address: the one before it does.
  std::size_t index = offset / granule(segment.pool);
  while (segment.starts[index] == nullptr || segment.starts[index]->address > target) --index;
  Block* block = segment.starts[index];
  return block->state == BlockState::in_use ? block : nullptr;
}

Block* BlockPool::find_start(Segment& segment, const void* address) noexcept {
  const auto* target = static_cast<const std::byte*>(address);
  const std::size_t index = static_cast<std::size_t>(target - segment.address) / granule(segment.pool);
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
    MemorySegment& entry = result.emplace_back();
    entry.device = device_;
    entry.address = address;
    entry.bytes = segment.bytes;
    entry.pool = segment.pool;
    entry.graph_pool = static_cast<std::uint64_t>(segment.graph_pool);
    entry.stream = segment.stream.handle;
    entry.stream_device = segment.stream.device;
    for (const Block* block = segment.starts.front(); block != nullptr; block = block->next) {
      entry.blocks.push_back({block->address, block->bytes, block->requested_bytes, block->state});
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

void BlockPool::discard(Block& block) noexcept {
  block.segment = nullptr;
  block.previous = nullptr;
  block.next = spare_;
  spare_ = &block;
}

void BlockPool::put_into_cache(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  block.state = BlockState::cached;
  if (is_part(block)) {
    counts_.increase(Quantity::inactive_split, pool, 1);
    counts_.increase(Quantity::inactive_split_bytes, pool, block.bytes);
  } else {
    block.segment->cached_since = moment_;
  }
  block.segment->cache->of(pool).insert(block);
}

void BlockPool::take_out_of_cache(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  if (is_part(block)) {
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
  start_of(*rest.segment, rest.address) = &rest;
  block.next = &rest;
  block.bytes = bytes;
  put_into_cache(rest);
}

void BlockPool::absorb_next(Block& block) noexcept {
  Block& absorbed = *block.next;
  start_of(*absorbed.segment, absorbed.address) = nullptr;
  block.bytes += absorbed.bytes;
  block.next = absorbed.next;
  if (block.next != nullptr) block.next->previous = &block;
  discard(absorbed);
}

}  // namespace tutti
