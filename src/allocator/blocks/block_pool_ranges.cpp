// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/block_layout.hpp"
#include "allocator/blocks/block_pool.hpp"

#include <algorithm>
#include <functional>
#include <vector>

/// Maps memory to a block pool's expandable segments and unmaps it.
namespace tutti {
namespace {

bool is_cached(const Block* block) noexcept {
  return block_layout::has_memory(block) && block->state == BlockState::cached;
}

std::size_t cached_bytes(const Block* neighbour) noexcept {
  return is_cached(neighbour) ? neighbour->bytes : 0;
}

void link_between(Block* before, Block& block, Block* after) noexcept {
  block.previous = before;
  block.next = after;
  if (before != nullptr) before->next = &block;
  if (after != nullptr) after->previous = &block;
}

}  // namespace

std::size_t BlockPool::page_bytes(MemoryPool pool) noexcept {
  return pool == MemoryPool::small_pool ? block_layout::small_segment : block_layout::large_segment;
}

void BlockPool::add_range(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                          GraphPool graph_pool) {
  reserve_blocks(1);
  Segment& segment = enter_segment(address, bytes, pool, stream, graph_pool);
  segment.is_expandable = true;
  try {
    segment.holes.reserve(1);
  } catch (...) {
    remove(segment);
    throw;
  }
  Block& hole = new_block();
  hole.segment = &segment;
  hole.address = address;
  hole.bytes = bytes;
  hole.state = BlockState::awaiting_free;
  hole.is_hole = true;
  segment.first = &hole;
  segment.hole_count = 1;
  segment.holes.push_back(&hole);
}

std::optional<BlockPool::Gap> BlockPool::gap_for(std::size_t requested_bytes, backend::StreamRef stream,
                                                 GraphPool graph_pool) noexcept {
  const std::size_t bytes = block_layout::block_bytes(requested_bytes);
  const MemoryPool pool = block_layout::pool_for(bytes);
  const StreamBlocks* const cache = cache_of(stream, graph_pool);
  if (cache == nullptr) return std::nullopt;
  for (const auto& [address, segment] : segments_) {
    if (!segment->is_expandable || segment->cache != cache || segment->pool != pool) continue;
    for (Block* const hole : segment->holes) {
      const std::size_t before = cached_bytes(hole->previous);
      const std::size_t missing = bytes > before ? bytes - before : 1;
      const std::size_t pages = round_up(missing, page_bytes(pool));
      if (pages <= hole->bytes) return Gap{hole, hole->address, pages};
      if (hole->bytes + cached_bytes(hole->next) >= missing) return Gap{hole, hole->address, hole->bytes};
    }
  }
  return std::nullopt;
}

void BlockPool::fill(const Gap& gap) {
  Block& hole = *gap.hole;
  Segment& segment = *hole.segment;
  reserve_blocks(1);
  const auto end = static_cast<std::size_t>(gap.address - segment.address) + gap.bytes;
  const std::size_t starts = end / block_layout::granule(segment.pool);
  if (segment.starts.size() < starts) segment.starts.resize(starts, nullptr);

  Block& fresh = new_block();
  fresh.segment = &segment;
  fresh.address = gap.address;
  fresh.bytes = gap.bytes;
  if (segment.first == &hole) segment.first = &fresh;
  if (gap.bytes == hole.bytes) {
    link_between(hole.previous, fresh, hole.next);
    std::erase(segment.holes, &hole);
    --segment.hole_count;
    discard(hole);
  } else {
    link_between(hole.previous, fresh, &hole);
    hole.address += gap.bytes;
    hole.bytes -= gap.bytes;
  }
  block_layout::start_of(segment, fresh.address) = &fresh;
  counts_.increase(Quantity::reserved_bytes, segment.pool, gap.bytes);
  count_parts(segment, 1 - static_cast<int>(block_layout::has_memory(fresh.previous)) -
                           static_cast<int>(block_layout::has_memory(fresh.next)));
  this->cache(fresh);
}

std::span<std::byte> BlockPool::pages_of(const Block& block) noexcept {
  const Segment& segment = *block.segment;
  if (!segment.is_expandable || !is_cached(&block)) return {};
  const std::size_t page = page_bytes(segment.pool);
  const auto begin = static_cast<std::size_t>(block.address - segment.address);
  const std::size_t end = begin + block.bytes;
  std::size_t first = round_up(begin, page);
  std::size_t last = end / page * page;
  // What stays must be long enough for a block of this pool.
  const auto may_stay = [&](std::size_t rest) {
    return rest == 0 || block_layout::worth_cutting(segment.pool, rest);
  };
  if (!may_stay(first - begin)) first += page;
  if (last > first && !may_stay(end - last)) last -= page;
  return first < last ? std::span(segment.address + first, last - first) : std::span<std::byte>();
}

bool BlockPool::has_cached_pages(const Segment& segment) noexcept {
  if (!segment.is_expandable) return false;
  for (const Block* block = segment.first; block != nullptr; block = block->next) {
    if (!pages_of(*block).empty()) return true;
  }
  return false;
}

std::vector<Block*> BlockPool::empty_pages_cached_before(Moment moment, std::size_t bytes,
                                                         std::span<const int> unwaited) {
  std::vector<Block*> candidates;
  for (const auto& [address, segment] : segments_) {
    if (!segment->is_expandable || segment->graph_pool != GraphPool::none || is_unwaited(*segment, unwaited))
      continue;
    const std::size_t earlier = candidates.size();
    for (Block* block = segment->first; block != nullptr; block = block->next) {
      if (block->cached_since < moment && !pages_of(*block).empty()) candidates.push_back(block);
    }
    segment->holes.reserve(segment->hole_count + candidates.size() - earlier);
  }
  std::ranges::stable_sort(candidates, {}, &Block::cached_since);
  reserve_blocks(2 * candidates.size());
  std::size_t emptied_bytes = 0;
  std::size_t count = 0;
  for (; count < candidates.size() && emptied_bytes < bytes; ++count) {
    Block& block = *candidates[count];
    const std::span<std::byte> pages = pages_of(block);
    emptied_bytes += pages.size();
    candidates[count] = &empty(block, pages);
  }
  candidates.resize(count);
  return candidates;
}

Block& BlockPool::empty(Block& block, std::span<std::byte> pages) noexcept {
  Segment& segment = *block.segment;
  const std::uint64_t cached_since = block.cached_since;
  std::byte* const end = block.address + block.bytes;
  take_out_of_cache(block);
  // The block becomes what stays before the pages, if anything does, or else the hole.
  Block* hole = &block;
  if (block.address < pages.data()) {
    hole = &new_block();
    hole->segment = &segment;
    block.bytes = static_cast<std::size_t>(pages.data() - block.address);
    link_between(&block, *hole, block.next);
  } else {
    block_layout::start_of(segment, block.address) = nullptr;
  }
  hole->address = pages.data();
  hole->bytes = pages.size();
  hole->state = BlockState::awaiting_free;
  hole->is_hole = true;
  ++segment.hole_count;
  Block* rest = nullptr;
  if (std::byte* const begin = pages.data() + pages.size(); begin < end) {
    rest = &new_block();
    rest->segment = &segment;
    rest->address = begin;
    rest->bytes = static_cast<std::size_t>(end - begin);
    link_between(hole, *rest, hole->next);
    block_layout::start_of(segment, begin) = rest;
  }
  counts_.decrease(Quantity::reserved_bytes, segment.pool, pages.size());
  count_parts(segment, static_cast<int>(block_layout::has_memory(hole->previous)) +
                           static_cast<int>(block_layout::has_memory(hole->next)) - 1);
  for (Block* const kept : {hole == &block ? nullptr : &block, rest}) {
    if (kept == nullptr) continue;
    put_into_cache(*kept);
    kept->cached_since = cached_since;
  }
  return *hole;
}

std::optional<std::span<std::byte>> BlockPool::close(Block& closed) noexcept {
  Segment& segment = *closed.segment;
  Block* hole = &closed;
  // A neighbour that is not in the list yet has memory still: it joins when it is closed itself.
  const auto is_listed = [&](const Block* block) {
    return block != nullptr && block->is_hole && std::ranges::count(segment.holes, block) > 0;
  };
  const auto absorb = [&](Block& into, Block& absorbed) {
    into.bytes += absorbed.bytes;
    into.next = absorbed.next;
    if (into.next != nullptr) into.next->previous = &into;
    --segment.hole_count;
    discard(absorbed);
  };
  if (is_listed(hole->next)) {
    std::erase(segment.holes, hole->next);
    absorb(*hole, *hole->next);
  }
  if (is_listed(hole->previous)) {
    hole = hole->previous;
    absorb(*hole, *hole->next);
  } else {
    const auto place = std::ranges::upper_bound(segment.holes, hole->address, std::less(), &Block::address);
    segment.holes.insert(place, hole);
  }
  if (hole->bytes != segment.bytes) return std::nullopt;
  const std::span range(segment.address, segment.bytes);
  discard(*hole);
  remove(segment);
  return range;
}

}  // namespace tutti
