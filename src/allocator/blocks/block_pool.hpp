// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/block.hpp"
#include "allocator/blocks/free_blocks.hpp"
#include "allocator/blocks/memory_counts.hpp"
#include "allocator/blocks/segment_index.hpp"
#include "backend/handles.hpp"
#include "base/cache_line.hpp"
#include "settings/allocator_settings.hpp"
#include "tutti/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

/// The cached blocks of one stream, in one private pool or none.
struct alignas(cache_line_bytes) StreamBlocks {
  backend::StreamRef stream;
  GraphPool graph_pool = GraphPool::none;
  std::size_t segments = 0;
  FreeBlocks small{MemoryPool::small_pool};
  FreeBlocks large{MemoryPool::large_pool};

  [[nodiscard]] FreeBlocks& of(MemoryPool pool) noexcept {
    return pool == MemoryPool::small_pool ? small : large;
  }
};

/// Manages the segments of one caching allocator: their blocks, the cached blocks in order of fit, and the
/// statistics. It makes no calls to a device, and is not synchronised.
class BlockPool {
 public:
  /// Adds its segments to `index`, if there is one.
  explicit BlockPool(int device, SegmentIndex* index = nullptr,
                     std::size_t max_split_bytes = AllocatorSettings::no_limit)
      : device_(device), index_(index), max_split_bytes_(max_split_bytes) {}
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// The largest request that can be rounded.
  static constexpr std::size_t max_bytes = std::size_t{1} << 62;

  /// Returns the pool that serves a request.
  [[nodiscard]] static MemoryPool pool_of(std::size_t requested_bytes) noexcept;
  /// Returns how many bytes to get from the device for a request that no cached block can serve.
  [[nodiscard]] static std::size_t segment_bytes(std::size_t requested_bytes) noexcept;

  /// Returns the best fitting cached block of `stream` in `graph_pool`, cut to size; nullptr if there is
  /// none. Uses no heap memory if it finds a block that need not be cut, or if a block was cut before.
  [[nodiscard]] Block* take(std::size_t requested_bytes, backend::StreamRef stream,
                            GraphPool graph_pool = GraphPool::none);
  /// Adds `bytes` bytes of the device's memory at `address`, as many as `segment_bytes` gives for some
  /// request that `pool` serves, for requests of `stream` in `graph_pool`.
  void add_segment(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                   GraphPool graph_pool = GraphPool::none);
  [[nodiscard]] bool has_segments_of(GraphPool graph_pool) const;
  /// Detaches all that belongs to `graph_pool` from it; blocks in use stay in use.
  void dissolve(GraphPool graph_pool) noexcept;
  /// Notes that the block is no longer used; its bytes still count as active.
  void release(Block& block) noexcept;
  /// Makes a released block available again. Joins it with its cached neighbours.
  void give_back(Block& block) noexcept;
  /// Returns whether a segment of `whole` bytes would serve such a request, were it added.
  [[nodiscard]] bool may_serve_request(std::size_t whole, std::size_t requested_bytes) const noexcept;
  /// A point in time between two calls.
  using Moment = std::uint64_t;
  [[nodiscard]] Moment now() noexcept { return ++moment_; }
  /// Returns the pool's own device and those of the streams of all segments that are cached as a whole;
  /// nothing if there is no such segment.
  [[nodiscard]] std::vector<int> devices_of_cached_segments() const;
  [[nodiscard]] std::size_t segment_count() const noexcept { return segments_.size(); }
  /// Removes segments that have been cached as a whole since before `moment`, and belong to no private pool,
  /// for the caller to free. Removes all of them, or those that have been cached for the longest until they
  /// add up to `bytes` bytes. Keeps segments whose work may still run on one of the devices `unwaited`.
  [[nodiscard]] std::vector<Segment> remove_segments_cached_before(Moment moment,
                                                                   std::size_t bytes = SIZE_MAX,
                                                                   std::span<const int> unwaited = {});

  // Expandable segments. A range has holes, where it has no memory: at first it is one. Memory comes and goes
  // in whole pages.
  [[nodiscard]] static std::size_t page_bytes(MemoryPool pool) noexcept;
  /// Adds a range without memory, of whole pages, for requests that `pool` serves.
  void add_range(std::byte* address, std::size_t bytes, MemoryPool pool, backend::StreamRef stream,
                 GraphPool graph_pool = GraphPool::none);
  /// The beginning of a hole.
  struct Gap {
    Block* hole = nullptr;
    std::byte* address = nullptr;
    std::size_t bytes = 0;
  };
  /// Returns the gap where memory would let such a request be served, together with what is cached next to
  /// it; nothing if no range has room. It is valid until holes change.
  [[nodiscard]] std::optional<Gap> gap_for(std::size_t requested_bytes, backend::StreamRef stream,
                                           GraphPool graph_pool = GraphPool::none) noexcept;
  /// Notes that the gap has memory now. Changes nothing if it throws.
  void fill(const Gap& gap);
  /// Makes holes of pages that have been cached since before `moment`, chosen as by
  /// `remove_segments_cached_before`. The caller unmaps their memory, and then calls `close` for each hole.
  [[nodiscard]] std::vector<Block*> empty_pages_cached_before(Moment moment, std::size_t bytes = SIZE_MAX,
                                                              std::span<const int> unwaited = {});
  /// Notes that the hole has no memory any more. If its range has none left, removes and returns the range.
  [[nodiscard]] std::optional<std::span<std::byte>> close(Block& hole) noexcept;

  /// Returns the block in use that contains `address`, nullptr if there is none.
  [[nodiscard]] Block* find(const void* address);
  /// Returns the segment that contains `address`, nullptr if there is none.
  [[nodiscard]] Segment* segment_around(const void* address);
  /// Returns the block in use that begins at `address` in `segment`, which may be any segment that ever
  /// existed; nullptr if there is none.
  [[nodiscard]] static Block* find_start(Segment& segment, const void* address) noexcept;
  [[nodiscard]] MemoryCounts& counts() noexcept { return counts_; }
  [[nodiscard]] MemoryStats stats() const noexcept { return counts_.stats(); }
  [[nodiscard]] std::vector<MemorySegment> snapshot() const;

 private:
  /// Returns the cached blocks of the stream in the pool, nullptr if there are none.
  [[nodiscard]] StreamBlocks* cache_of(backend::StreamRef stream, GraphPool graph_pool) noexcept;
  [[nodiscard]] StreamBlocks& cache_with_room(backend::StreamRef stream, GraphPool graph_pool,
                                              MemoryPool pool);
  /// Notes that `cache` has one segment less.
  void leave(StreamBlocks& cache) noexcept;
  [[nodiscard]] Segment& new_segment();
  [[nodiscard]] Block& new_block();
  void discard(Block& block) noexcept;
  void put_into_cache(Block& block) noexcept;
  void take_out_of_cache(Block& block) noexcept;
  /// Returns whether a request of `bytes` bytes, rounded, gets the block of `whole` bytes that fits best.
  [[nodiscard]] bool may_serve(std::size_t whole, std::size_t bytes) const noexcept;
  /// Keeps the first `bytes` bytes in `block` and caches the rest as a new one.
  void split(Block& block, std::size_t bytes);
  /// Appends `block->next`, which is in no set, to `block`.
  void absorb_next(Block& block) noexcept;

  /// Makes a block that nobody uses available again. Joins it with its cached neighbours.
  void cache(Block& block) noexcept;
  /// Returns whether work may still use what is cached in the segment.
  [[nodiscard]] bool is_unwaited(const Segment& segment, std::span<const int> unwaited) const noexcept;
  /// Adds a segment without blocks to all lists.
  [[nodiscard]] Segment& enter_segment(std::byte* address, std::size_t bytes, MemoryPool pool,
                                       backend::StreamRef stream, GraphPool graph_pool);
  /// Removes a segment that has no blocks.
  void remove(Segment& segment) noexcept;
  /// Returns the whole pages of a cached block of a range that can be unmapped; an empty span if there are
  /// none.
  [[nodiscard]] static std::span<std::byte> pages_of(const Block& block) noexcept;
  [[nodiscard]] static bool has_cached_pages(const Segment& segment) noexcept;
  /// Makes a hole of `pages` of a cached block.
  Block& empty(Block& block, std::span<std::byte> pages) noexcept;
  /// Adds `more`, which may be negative, to the count of parts of the segment that have memory.
  void count_parts(const Segment& segment, int more) noexcept;
  /// Makes sure that the next `count` calls of `new_block` do not throw.
  void reserve_blocks(std::size_t count);

  /// Returns the block that is the whole segment and cached; nullptr if there is none.
  [[nodiscard]] static Block* cached_whole(const Segment& segment) noexcept;

  int device_;
  Moment moment_ = 0;
  SegmentIndex* const index_;
  const std::size_t max_split_bytes_;
  std::map<const std::byte*, Segment*> segments_;  // by address
  std::deque<Segment> segment_store_;              // all there ever were, as of the blocks
  std::vector<Segment*> spare_segments_;           // has room for all
  std::vector<std::unique_ptr<StreamBlocks>> caches_;
  StreamBlocks* last_cache_ = nullptr;  // of the last request
  std::deque<Block> blocks_;            // all there ever were; never shrinks
  Block* spare_ = nullptr;              // those not in use by any segment
  MemoryCounts counts_;
};

}  // namespace tutti
