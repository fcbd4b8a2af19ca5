// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/pending_frees.hpp"
#include "backend/handles.hpp"
#include "base/cache_line.hpp"
#include "device/open_captures.hpp"
#include "tutti/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct Segment;
struct StreamBlocks;

/// A piece of a segment that is in use, cached, waiting for events or without memory.
struct alignas(cache_line_bytes) Block : StreamUses {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested_bytes = 0;
  BlockState state = BlockState::in_use;
  Segment* segment = nullptr;
  Block* previous = nullptr;         ///< neighbour in the segment
  Block* next = nullptr;             ///< neighbour in the segment, or in the list of spare blocks
  Block* previous_cached = nullptr;  ///< in the list of `FreeBlocks`, while it is cached
  Block* next_cached = nullptr;
  std::uint64_t cached_since = 0;  ///< the moment, while it is cached
  bool is_raw = false;             ///< asked for by address: no tensor's
  bool is_split = false;           ///< counted as a part of a segment, while it is cached
  bool is_hole = false;            ///< addresses of a range without memory; in no state that a request knows
};

/// Memory obtained from the device, or a range of addresses that gets it as needed (an expandable segment).
/// It serves the requests of one stream, in one private pool or none.
struct alignas(cache_line_bytes) Segment {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  int device = -1;  ///< stays, also when the object serves for another segment
  MemoryPool pool = MemoryPool::small_pool;
  backend::StreamRef stream;
  GraphPool graph_pool = GraphPool::none;
  StreamBlocks* cache = nullptr;  ///< of its stream and private pool
  Block* first = nullptr;         ///< from which `Block::next` leads to all
  /// The block that starts in each granule of the segment, nullptr where none does. Blocks are at least a
  /// granule long. Holes have no entry; a range has entries up to where it has had memory.
  std::vector<Block*, CacheLineAllocator<Block*>> starts;
  bool is_expandable = false;
  std::size_t hole_count = 0;
  std::vector<Block*> holes;  ///< those that memory can be put into, by address; has room for `hole_count`
};

}  // namespace tutti
