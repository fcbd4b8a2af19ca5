// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/block.hpp"
#include "base/rounding.hpp"

#include <algorithm>
#include <cstddef>

/// The sizes of blocks and segments, and how blocks lie in their segment.
namespace tutti::block_layout {

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;

inline constexpr std::size_t smallest_block = 512;
inline constexpr std::size_t largest_small_request = mebibyte;
inline constexpr std::size_t small_segment = 2 * mebibyte;
inline constexpr std::size_t smallest_own_segment =
    10 * mebibyte;  // requests from here on are not cut from a shared segment
inline constexpr std::size_t large_segment = 20 * mebibyte;
inline constexpr std::size_t own_segment_rounding = 2 * mebibyte;

constexpr std::size_t block_bytes(std::size_t requested_bytes) noexcept {
  return std::max(smallest_block, round_up(requested_bytes, smallest_block));
}

constexpr MemoryPool pool_for(std::size_t block_bytes) noexcept {
  return block_bytes <= largest_small_request ? MemoryPool::small_pool : MemoryPool::large_pool;
}

/// Returns whether a rest of so many bytes is long enough for a block to be cut. This also bounds the blocks
/// of a pool from below: those of the large pool are longer than `largest_small_request`.
constexpr bool worth_cutting(MemoryPool pool, std::size_t rest) noexcept {
  return pool == MemoryPool::small_pool ? rest >= smallest_block : rest > largest_small_request;
}

constexpr std::size_t granule(MemoryPool pool) noexcept {
  return pool == MemoryPool::small_pool ? smallest_block : largest_small_request;
}

inline Block*& start_of(Segment& segment, const std::byte* address) noexcept {
  return segment.starts[static_cast<std::size_t>(address - segment.address) / granule(segment.pool)];
}

inline bool has_memory(const Block* block) noexcept {
  return block != nullptr && !block->is_hole;
}

/// Returns whether memory continues before or behind the block.
inline bool is_part(const Block& block) noexcept {
  return has_memory(block.previous) || has_memory(block.next);
}

}  // namespace tutti::block_layout
