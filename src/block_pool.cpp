// SPDX-License-Identifier: Apache-2.0
#include "block_pool.hpp"

#include "backend/rounding.hpp"
#include "caching_allocator.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
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

void increase(MemoryCounter& counter, std::int64_t amount) noexcept {
  counter.current += amount;
  counter.allocated += amount;
  counter.peak = std::max(counter.peak, counter.current);
}

void decrease(MemoryCounter& counter, std::int64_t amount) noexcept {
  counter.current -= amount;
  counter.freed += amount;
}

MemoryCounter& counter_of(PooledCounter& counter, MemoryPool pool) noexcept {
  return pool == MemoryPool::small_pool ? counter.small_pool : counter.large_pool;
}

void increase(PooledCounter& counter, MemoryPool pool, std::size_t amount) noexcept {
  increase(counter.all, static_cast<std::int64_t>(amount));
  increase(counter_of(counter, pool), static_cast<std::int64_t>(amount));
}

void decrease(PooledCounter& counter, MemoryPool pool, std::size_t amount) noexcept {
  decrease(counter.all, static_cast<std::int64_t>(amount));
  decrease(counter_of(counter, pool), static_cast<std::int64_t>(amount));
}

auto cache_key(GraphPool graph_pool, backend::StreamRef stream) noexcept {
  return std::tuple(graph_pool, stream.device, reinterpret_cast<std::uintptr_t>(stream.handle));
}

auto cache_key(const Block& block) noexcept {
  return cache_key(block.segment->graph_pool, block.segment->stream);
}

}  // namespace

bool BestFit::operator()(const Block* a, const Block* b) const noexcept {
  return std::tuple(cache_key(*a), a->bytes, reinterpret_cast<std::uintptr_t>(a->address)) <
         std::tuple(cache_key(*b), b->bytes, reinterpret_cast<std::uintptr_t>(b->address));
}

bool BestFit::operator()(const Block* block, const Request& request) const noexcept {
  return std::tuple(cache_key(*block), block->bytes) <
         std::tuple(cache_key(request.graph_pool, request.stream), request.bytes);
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

Block* BlockPool::take(std::size_t requested_bytes, backend::StreamRef stream, GraphPool graph_pool) {
  const std::size_t bytes = block_bytes(requested_bytes);
  const MemoryPool pool = pool_for(bytes);
  CachedBlocks& candidates = cached(pool);
  const auto found = candidates.lower_bound(BestFit::Request{graph_pool, stream, bytes});
  if (found == candidates.end() || (*found)->segment->stream != stream ||
      (*found)->segment->graph_pool != graph_pool) {
    return nullptr;
  }

  Block& block = **found;
  if (worth_cutting(pool, block.bytes - bytes)) {
    split(block, bytes);
  } else {
    take_out_of_cache(block);
  }
  block.state = BlockState::in_use;
  block.requested_bytes = requested_bytes;
  increase(stats_.allocation, pool, 1);
  increase(stats_.allocated_bytes, pool, block.bytes);
  increase(stats_.requested_bytes, pool, requested_bytes);
  increase(stats_.active, pool, 1);
  increase(stats_.active_bytes, pool, block.bytes);
  return &block;
}

void BlockPool::add_segment(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                            GraphPool graph_pool) {
  Segment segment;
  segment.address = address;
  segment.bytes = bytes;
  segment.pool = pool;
  segment.stream = stream;
  segment.graph_pool = graph_pool;
  segment.starts.resize(segment.bytes / granule(segment.pool));

  Block& block = new_block();
  try {
    block.segment = &segments_.emplace(address, std::move(segment)).first->second;
  } catch (...) {
    discard(block);
    throw;
  }
  block.address = address;
  block.bytes = block.segment->bytes;
  start_of(*block.segment, address) = &block;
  put_into_cache(block);
  increase(stats_.segment, block.segment->pool, 1);
  increase(stats_.reserved_bytes, block.segment->pool, block.bytes);
  ++stats_.num_device_alloc;
}

void BlockPool::release(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  decrease(stats_.allocation, pool, 1);
  decrease(stats_.allocated_bytes, pool, block.bytes);
  decrease(stats_.requested_bytes, pool, block.requested_bytes);
  block.requested_bytes = 0;
  block.state = BlockState::awaiting_free;
}

void BlockPool::give_back(Block& released) noexcept {
  const MemoryPool pool = released.segment->pool;
  decrease(stats_.active, pool, 1);
  decrease(stats_.active_bytes, pool, released.bytes);

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
  return std::ranges::any_of(segments_,
                             [&](const auto& entry) { return entry.second.graph_pool == graph_pool; });
}

void BlockPool::dissolve(GraphPool graph_pool) noexcept {
  for (auto& [address, segment] : segments_) {
    if (segment.graph_pool != graph_pool) continue;
    // The order of the cached blocks depends on it: they leave the set meanwhile.
    CachedBlocks& blocks = cached(segment.pool);
    for (Block* block = segment.starts.front(); block != nullptr; block = block->next) {
      if (block->state == BlockState::cached) block->node = blocks.extract(block->place);
    }
    segment.graph_pool = GraphPool::none;
    for (Block* block = segment.starts.front(); block != nullptr; block = block->next) {
      if (block->state == BlockState::cached) block->place = blocks.insert(std::move(block->node)).position;
    }
  }
}

Block* BlockPool::cached_whole(const Segment& segment) noexcept {
  Block* const first = segment.starts.front();
  return first->state == BlockState::cached && !is_part(*first) ? first : nullptr;
}

std::vector<int> BlockPool::devices_of_cached_segments() const {
  std::vector<int> devices;
  for (const auto& [address, segment] : segments_) {
    if (cached_whole(segment) == nullptr) continue;
    for (const int device : {device_, segment.stream.device}) {
      if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
    }
  }
  return devices;
}

std::vector<Segment> BlockPool::remove_segments_cached_before(Moment moment) {
  std::vector<Segment> removed;
  removed.reserve(segments_.size());
  for (auto entry = segments_.begin(); entry != segments_.end();) {
    Segment& segment = entry->second;
    Block* const whole = cached_whole(segment);
    if (whole == nullptr || segment.cached_since >= moment || segment.graph_pool != GraphPool::none) {
      ++entry;
      continue;
    }
    take_out_of_cache(*whole);
    discard(*whole);
    decrease(stats_.segment, segment.pool, 1);
    decrease(stats_.reserved_bytes, segment.pool, segment.bytes);
    ++stats_.num_device_free;
    removed.push_back(std::move(segment));
    entry = segments_.erase(entry);
  }
  return removed;
}

Segment* BlockPool::segment_around(const void* address) {
  const auto* target = static_cast<const std::byte*>(address);
  const auto entry = segments_.upper_bound(target);
  if (entry == segments_.begin()) return nullptr;
  Segment& segment = std::prev(entry)->second;
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

void BlockPool::reset_peak_stats() noexcept {
  for (PooledCounter* counter : {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
                                 &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
                                 &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
    for (MemoryCounter* part : {&counter->all, &counter->small_pool, &counter->large_pool})
      part->peak = part->current;
  }
}

std::vector<MemorySegment> BlockPool::snapshot() const {
  std::vector<MemorySegment> result;
  result.reserve(segments_.size());
  for (const auto& [address, segment] : segments_) {
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
  Block& block = blocks_.emplace_back();
  try {
    // The set only makes nodes for elements it holds; so this makes one for later.
    std::set<Block*> maker;
    maker.insert(&block);
    block.node = maker.extract(maker.begin());
  } catch (...) {
    blocks_.pop_back();
    throw;
  }
  return block;
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
    increase(stats_.inactive_split, pool, 1);
    increase(stats_.inactive_split_bytes, pool, block.bytes);
  } else {
    block.segment->cached_since = moment_;
  }
  block.place = cached(pool).insert(std::move(block.node)).position;
}

void BlockPool::take_out_of_cache(Block& block) noexcept {
  const MemoryPool pool = block.segment->pool;
  if (is_part(block)) {
    decrease(stats_.inactive_split, pool, 1);
    decrease(stats_.inactive_split_bytes, pool, block.bytes);
  }
  block.node = cached(pool).extract(block.place);
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
