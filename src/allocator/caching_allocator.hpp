// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/pending_frees.hpp"
#include "allocator/blocks/repeating_pool.hpp"
#include "allocator/growth.hpp"
#include "backend/backend.hpp"
#include "base/fork_mark.hpp"
#include "base/light_mutex.hpp"
#include "settings/allocator_settings.hpp"
#include "stream/event_pool.hpp"
#include "tutti/memory.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

/// Is notified before a segment is freed, because another process may have it open. None of the calls may
/// call the allocator.
class SegmentObserver {
 public:
  /// The reason that keeps a segment from being freed: none, one that passes soon, or one that may last.
  enum class Hold : std::uint8_t { none, passing, lasting };

  SegmentObserver() = default;
  SegmentObserver(const SegmentObserver&) = delete;
  SegmentObserver& operator=(const SegmentObserver&) = delete;
  /// Announces that the segment at `address`, which no work uses any more, is to be freed soon.
  virtual void will_free(const std::byte* address) noexcept = 0;
  /// Returns whether the announced segment may be freed; called right after the announcement. While it may
  /// not, the allocator keeps the segment and asks again, unless it uses the segment first.
  [[nodiscard]] virtual Hold hold_on(const std::byte* address) noexcept = 0;
  /// The program takes back memory of its own, an allocation that begins at `address`. Returns a passing hold
  /// while work of this process uses it, a lasting one while another process has it open or would not close
  /// it; the others are told to close it, in the latter case only if the caller insists. It is asked again
  /// until it returns none. Memory by pieces is held by work of this process alone: others keep the pieces
  /// that they have open.
  [[nodiscard]] virtual Hold let_go(const std::byte* address, bool /*insists*/) noexcept {
    return hold_on(address);
  }
  /// Announces that memory of an expandable segment, which no work uses any more, is to be unmapped, and
  /// returns what keeps it from going back to the device then: others who have it open keep it, and are told
  /// to close it. May be called again to ask.
  [[nodiscard]] virtual Hold will_unmap(std::span<const std::byte> /*memory*/) noexcept { return Hold::none; }

 protected:
  ~SegmentObserver() = default;
};

/// The state of the work of a destroyed graph, as far as it is known.
enum class GraphWork : std::uint8_t { done, unknown };

/// Stream-ordered caching allocator for one device's memory (sizes and pools: see `tutti/memory.hpp`).
///
/// A block is reused at once by its own stream, whose order makes that safe; other streams that used it are
/// named with `record_stream`, and then the block returns only once events recorded there, when it was freed,
/// have completed. Requests ask for that before they search the cache, and so do the figures. Small requests
/// that the cache can serve mostly do not ask again where nobody has waited for a device since; before the
/// device is asked for memory, all do. A stream under capture is never marked or asked: what it used waits
/// until the capture has ended.
///
/// A graph has a private pool, as it uses its memory whenever it is launched: what is allocated there goes
/// back there, and blocks of others can be left there when they are freed.
///
/// Thread-safe. A hit costs a lock and a few steps, however much is cached, fewer yet if it repeats the one
/// before (`RepeatingPool`), and takes no memory from the heap; nobody is asked for anything while no freed
/// block waits. Only one thread at a time asks the device for memory, without holding up hits of others.
/// Threads on different devices share no cache line.
class alignas(cache_line_bytes) CachingAllocator {
 public:
  CachingAllocator(backend::Backend& backend, EventPool& events, int device, SegmentIndex* index = nullptr,
                   const AllocatorSettings& settings = {});
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;
  ~CachingAllocator();

  /// Returns at least `bytes` bytes, for first use on `stream` (of any device), from the private pool of a
  /// graph that `stream` is captured into, or none. Zero bytes give a valid block.
  ///
  /// A request that finds nothing cached gets memory that observers keep from being freed, before the device
  /// is asked for more, unless much of that would be left over. When the device refuses: looks for blocks
  /// that have become free meanwhile; then returns cached segments to the device and asks again; then waits
  /// for all blocks that wait for events, returns all cached segments, and searches the cache (before that,
  /// too) and asks the device a last time; then throws OutOfMemoryError. While `stream` is captured, only the
  /// cache and the device are asked. Passes on pending failures of devices it has to wait for.
  [[nodiscard]] Block* allocate(std::size_t bytes, backend::StreamRef stream,
                                GraphPool graph_pool = GraphPool::none);
  /// Returns memory that belongs to no tensor and is not cached; the caller returns it to the device. Makes
  /// the same attempts as `allocate` for a request that finds nothing cached. Returns nullptr if the device
  /// refuses.
  [[nodiscard]] void* allocate_uncached(std::size_t bytes);
  /// Frees a block. If there is a `keeper` and the block does not belong to it, the block is kept until that
  /// pool is closed, because the graph under capture may use it.
  void free(Block* block, GraphPool keeper = GraphPool::none) noexcept;
  /// Frees the block that begins at `address` in `segment`, which is or was this allocator's, as `free` does.
  /// Returns false, and changes nothing, if there is no block in use that is marked `is_raw`.
  [[nodiscard]] bool free_raw(Segment& segment, const void* address, GraphPool keeper) noexcept;
  /// Adds a graph pool; called before the first request or free that names it.
  void add_graph_pool(GraphPool graph_pool);
  /// Closes the pool of a destroyed graph. Its memory joins the common cache once the graph's work is done;
  /// if that is unknown, once all devices have been waited for (`empty_cache`, or a request that the device
  /// refuses).
  void close_graph_pool(GraphPool graph_pool, GraphWork work) noexcept;
  void record_stream(Block* block, backend::StreamRef stream);
  [[nodiscard]] static void* address(const Block* block) noexcept;
  /// Returns the block in use that contains `address`, nullptr if there is none.
  [[nodiscard]] Block* find(const void* address);

  /// The memory around a block in use, as the device allocated it in one piece.
  struct Extent {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    backend::MemoryOrigin origin = backend::MemoryOrigin::block;  ///< piece: bytes in some, side by side
    bool is_block = false;      ///< of these, a block of an expandable segment, whose bounds may change later
    bool is_of_graphs = false;  ///< a block of a graph pool, which replays use even if it is freed

    [[nodiscard]] bool contains(const std::byte* first, std::size_t count) const noexcept {
      if (first < address || count > bytes) return false;
      return static_cast<std::size_t>(first - address) <= bytes - count;
    }
  };
  /// Returns the block in use that contains `address`; an extent without an address if nobody uses that
  /// memory; nothing if the address is not this allocator's.
  [[nodiscard]] std::optional<Extent> block_around(const void* address);
  /// Returns the segment of the block in use that contains `address`, or that block itself if the segment is
  /// expandable; an extent without an address if there is none.
  [[nodiscard]] Extent segment_of(const void* address);
  /// Adds an observer, which is asked until it is removed.
  void add_observer(SegmentObserver& observer);
  void remove_observer(SegmentObserver& observer) noexcept;
  /// Takes over memory that another owner got from the device and that no work of this process uses any more.
  /// It is freed like cached segments, as soon as no observer holds it.
  void free_when_let_go(Extent memory);
  /// Frees what observers no longer hold, without waiting for them.
  void free_let_go() noexcept;

  /// Returns cached segments to the device, after waiting for the devices whose streams may still use them.
  /// Keeps segments of devices with a stream under capture, because these devices cannot be waited for.
  void empty_cache();
  /// Waits for the events that freed blocks wait for, and returns those blocks to the cache.
  void finish_pending();
  [[nodiscard]] MemoryStats stats();
  [[nodiscard]] std::vector<MemorySegment> snapshot();
  /// The statistics and the segments at one point in time, whatever other threads do.
  struct Books {
    MemoryStats stats;
    std::vector<MemorySegment> segments;
  };
  [[nodiscard]] Books books();
  void reset_peak_stats();
  void reset_accumulated_stats();
  /// Returns the bytes in blocks that are in use or wait for events.
  [[nodiscard]] std::size_t bytes_active();
  /// Sets the share of the device's memory, from 0 to 1, that may be reserved.
  void set_memory_fraction(double fraction);
  [[nodiscard]] double memory_fraction();

 private:
  struct Source;
  /// Memory that is to be freed, but that an observer still holds.
  struct Held {
    Extent memory;
    std::optional<MemoryPool> pool;  ///< which it may serve again meanwhile; none: it may be used elsewhere
  };

  /// Returns true if a request is served from the cache before any events are queried, which costs more than
  /// the rest of a hit. If no block waits, all requests are. Otherwise small requests are, unless a thread
  /// has waited for a device since the last query: then events are queried before the device is asked for
  /// memory. Large requests never are, because they would cut blocks that are better kept whole.
  [[nodiscard]] bool may_take_unasked(std::size_t bytes) noexcept;
  /// Works as `allocate`, without the stream sanitizer.
  [[nodiscard]] Block* take(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool);
  void free_locked(Block& block, GraphPool keeper) noexcept;
  void reap_locked();
  struct GraphMemory {
    KeptFrees kept;        ///< blocks of others
    bool is_gone = false;  ///< the graph, whose work may not be done
  };
  using GraphPools = std::map<GraphPool, GraphMemory>;
  void dissolve_locked(GraphPools::iterator graph) noexcept;
  /// Returns so many bytes of cached segments to the device, those unused longest first. Releases `growth`
  /// while it waits for devices and observers.
  void return_cached(GrowthLock& growth, std::size_t bytes = SIZE_MAX);
  /// Works as `allocate` for a request that finds nothing cached.
  [[nodiscard]] Block* allocate_grown(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool);
  /// Returns whether so many bytes more may be reserved.
  [[nodiscard]] bool may_reserve(std::size_t bytes);
  /// Returns cached memory to the device that would exceed the limit once so many more bytes are reserved.
  void collect_garbage(GrowthLock& growth, std::size_t bytes);
  /// Returns whether segments are expandable. Warns once if they should be, but cannot.
  [[nodiscard]] bool can_expand();
  /// Adds a range for such requests; returns false if there are no addresses for one that is long enough.
  [[nodiscard]] bool add_range(std::size_t bytes, backend::StreamRef stream, GraphPool graph_pool);
  /// Maps memory to the pages of a gap; returns false if the device has not enough.
  [[nodiscard]] bool map(const BlockPool::Gap& gap, std::size_t page);
  /// Unmaps the memory of holes, and releases ranges that have none left. Waits for observers for a while.
  void unmap(GrowthLock& growth, const std::vector<Block*>& holes) noexcept;
  /// Announces to observers that holes are to be unmapped, and waits for a while until nobody holds them.
  void await_closes(GrowthLock& growth, const std::vector<Block*>& holes) noexcept;
  /// Frees what observers no longer hold, and waits for them for a while.
  void free_held(GrowthLock& growth) noexcept;
  /// Frees what observers no longer hold, without waiting; returns true if one of them will hold memory only
  /// for a moment.
  bool free_let_go(GrowthLock& growth) noexcept;
  [[nodiscard]] std::size_t held_bytes() const noexcept;
  [[noreturn]] void throw_out_of_memory(std::size_t bytes, std::size_t held);

  backend::Backend& backend_;
  const int device_;
  const bool is_watched_;
  const ForkMark fork_mark_;
  const AllocatorSettings settings_;
  Growth growth_;                            ///< its turn is taken before `mutex_`
  std::vector<SegmentObserver*> observers_;  ///< guarded by `growth_`, as is the next
  std::vector<Held> held_;
  std::optional<bool> can_expand_;  ///< guarded by `growth_`; unknown until the device is asked for memory
  /// Guards everything below. It is never held while waiting, because the work that is waited for may have to
  /// free a block.
  LightMutex mutex_;
  RepeatingPool pool_;
  PendingFrees pending_;
  GraphPools graph_pools_;
  std::uint64_t waits_at_reap_ = 0;  ///< `HostWaits` when the events were asked last
  std::size_t small_requests_ = 0;
  double fraction_ = 1;
  std::size_t most_bytes_ = SIZE_MAX;  ///< that may be reserved
};

}  // namespace tutti
