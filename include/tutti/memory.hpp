// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Reports what the caching allocators hold, tunes them, and gives memory back.
///
/// Each device has one caching allocator, ordered by streams: the memory of a destroyed tensor is kept for
/// later tensors of the same stream instead of going back to the device. Requests are rounded up to 512
/// bytes. Those of up to 1 MiB are cut from segments of 2 MiB (the small pool), those above 1 MiB and under
/// 10 MiB from segments of 20 MiB, and larger ones get segments of their own size rounded up to 2 MiB (the
/// large pool).
///
/// Requests for a stream that is being captured into a graph are served from the graph's own segments. Until
/// the graph is destroyed, these serve no other requests and do not go back to the device.
///
/// `TUTTI_ALLOC_CONF` tunes the allocators: `name:value` pairs with commas between them. If it is unset, none
/// of this is done.
///  - `max_split_size_mb:N` (more than 20): blocks of N MiB and more are not cut. They serve only requests of
///    at least N MiB that are less than 20 MiB smaller than the block. This keeps large segments whole if
///    sizes vary.
///  - `garbage_collection_threshold:F` (more than 0, less than 1): before a device is asked for memory that
///    would bring the reserved bytes above this fraction of the process's limit
///    (`set_per_process_memory_fraction`), cached segments go back to the device, least recently used first,
///    until it would not. This waits for the device, and is skipped during a capture.
///  - `expandable_segments:True` (or `False`): a stream's requests are cut from a range of addresses for each
///    pool, to which memory is mapped as needed, in pieces of 2 MiB for the small pool and 20 MiB for the
///    large. Pieces without a block in use can go back to the device wherever they lie, so that varying sizes
///    do not fragment memory. Blocks are always cut. Other processes open blocks of such segments one by one,
///    and keep the pieces of a block that is freed until they close it. If the driver does not support it, a
///    warning says so once, and segments are ordinary ones.
/// With any other value, the first call that needs a device throws Error(invalid_argument).
///
/// All functions are thread-safe and throw Error(invalid_argument) for an unknown device.
namespace tutti {

/// One quantity over time. `peak` is the greatest `current` since the start or the last
/// `reset_peak_memory_stats`. `current == allocated - freed` holds until `reset_accumulated_memory_stats`;
/// afterwards they differ by what `current` was then.
struct MemoryCounter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  ///< all increases since the start or the last reset
  std::int64_t freed = 0;      ///< all decreases since the start or the last reset
};

/// A quantity for both pools together and for each of them.
struct PooledCounter {
  MemoryCounter all;
  MemoryCounter small_pool;
  MemoryCounter large_pool;
};

/// Statistics of one device's allocator. Each `current` always equals the matching sum over
/// `memory_snapshot`. Both report the present: a block that was freed while other streams used it
/// (`record_stream`) counts as cached, and no longer as active, from the first call after those streams have
/// finished their work. The next request after somebody has waited for that work may get the block.
struct MemoryStats {
  PooledCounter allocation;            ///< blocks in use
  PooledCounter segment;               ///< pieces of memory obtained from the device
  PooledCounter active;                ///< blocks in use, or given up while other streams may use them
  PooledCounter inactive_split;        ///< cached blocks that are only a part of their segment
  PooledCounter allocated_bytes;       ///< in blocks in use
  PooledCounter reserved_bytes;        ///< in segments
  PooledCounter active_bytes;          ///< in active blocks
  PooledCounter inactive_split_bytes;  ///< in cached blocks that cannot go back to the device
  PooledCounter requested_bytes;       ///< what callers asked for, before rounding, in blocks in use

  std::int64_t num_alloc_retries =
      0;                      ///< times the device refused and the cache was searched for memory to give back
  std::int64_t num_ooms = 0;  ///< times an OutOfMemoryError was thrown
  std::int64_t num_device_alloc = 0;  ///< segments obtained from the device, taken back (`empty_cache`), or
                                      ///< parted by giving back what lay in the middle
  std::int64_t num_device_free = 0;   ///< segments given up, or joined by memory between them
};

enum class MemoryPool : std::uint8_t { small_pool, large_pool };

enum class BlockState : std::uint8_t {
  in_use,         ///< belongs to a tensor, or to whoever called `caching_allocator_alloc`
  awaiting_free,  ///< given up, but other streams may still use it
  cached,         ///< ready for the next request of its stream
};

/// A part of a segment.
struct MemoryBlock {
  const void* address = nullptr;
  std::size_t bytes = 0;
  std::size_t requested_bytes = 0;  ///< what the caller asked for; 0 unless in use
  BlockState state = BlockState::cached;
};

/// One piece of memory obtained from a device, and its blocks in ascending order without gaps. Of an
/// expandable segment, each part that has memory, and lies between addresses that have none, is one.
struct MemorySegment {
  int device = -1;
  const void* address = nullptr;
  std::size_t bytes = 0;
  MemoryPool pool = MemoryPool::small_pool;
  void* stream = nullptr;        ///< native handle of the stream whose requests the segment serves
  int stream_device = -1;        ///< the device of that stream
  std::uint64_t graph_pool = 0;  ///< tells the private pools of graphs (`Graph`) apart; 0 for none
  bool is_expandable = false;    ///< see `TUTTI_ALLOC_CONF`
  std::vector<MemoryBlock> blocks;
};

[[nodiscard]] TUTTI_EXPORT MemoryStats memory_stats(Device device = Device::current());
/// Returns the bytes in blocks in use.
[[nodiscard]] TUTTI_EXPORT std::size_t memory_allocated(Device device = Device::current());
/// Returns the peak of `memory_allocated` since the start or the last `reset_peak_memory_stats`.
[[nodiscard]] TUTTI_EXPORT std::size_t max_memory_allocated(Device device = Device::current());
/// Returns the bytes in segments, in use or cached.
[[nodiscard]] TUTTI_EXPORT std::size_t memory_reserved(Device device = Device::current());
/// Returns the peak of `memory_reserved` since the start or the last `reset_peak_memory_stats`.
[[nodiscard]] TUTTI_EXPORT std::size_t max_memory_reserved(Device device = Device::current());
/// Makes every `peak` of the device's statistics equal to its `current`.
TUTTI_EXPORT void reset_peak_memory_stats(Device device = Device::current());
/// Sets every `allocated` and `freed` of the device's statistics, and its `num_…`, to 0.
TUTTI_EXPORT void reset_accumulated_memory_stats(Device device = Device::current());
/// Returns the segments of all devices, by device, then by address.
[[nodiscard]] TUTTI_EXPORT std::vector<MemorySegment> memory_snapshot();
/// Returns the snapshot as one line of JSON, for tools:
///
///     {"schema": "tutti-memory-snapshot/1", "segments": [
///       {"device": 0, "address": 139637976727552, "total_size": 2097152, "allocated_size": 1024,
///        "active_size": 1024, "requested_size": 1000, "stream": 0, "stream_device": 0,
///        "segment_type": "small", "segment_pool_id": 0, "is_expandable": false, "blocks": [
///          {"address": 139637976727552, "size": 1024, "requested_size": 1000, "state": "active_allocated"},
///          {"address": 139637976728576, "size": 2096128, "requested_size": 0, "state": "inactive"}]}]}
///
/// Sizes are bytes. `segment_type` is "small" or "large"; `segment_pool_id` is `MemorySegment::graph_pool`; a
/// block's state is "active_allocated" (`in_use`), "active_awaiting_free" or "inactive" (`cached`).
[[nodiscard]] TUTTI_EXPORT std::string memory_snapshot_json();

enum class SummaryDetail : std::uint8_t { full, abbreviated };

/// Returns a table of the device's statistics for people: one row per quantity, with its current value, its
/// peak, and the totals allocated and freed; in full detail, also for each of the two pools.
[[nodiscard]] TUTTI_EXPORT std::string memory_summary(Device device = Device::current(),
                                                      SummaryDetail detail = SummaryDetail::full);

/// Limits the memory that the process reserves on the device to this fraction of the device's memory, from 0
/// to 1; initially 1. A request that would exceed it is treated as if the device had no more memory, and
/// throws OutOfMemoryError in the end. Memory that is reserved already stays. Throws Error(invalid_argument)
/// for a number out of range.
TUTTI_EXPORT void set_per_process_memory_fraction(double fraction, Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT double get_per_process_memory_fraction(Device device = Device::current());

/// Allocates at least `bytes` bytes from the caching allocator, for first use on the current stream of the
/// device, or on `stream`, which may be another device's. Zero bytes give a unique address. The memory
/// behaves as a tensor's does with regard to streams and captures. Throws OutOfMemoryError.
///
/// Cost: a hit in the cache allocates no host memory and takes one lock, which threads that use other devices
/// do not share. Cheapest are sizes that are allocated and freed over and over on one stream while no other
/// thread allocates on the device.
[[nodiscard]] TUTTI_EXPORT void* caching_allocator_alloc(std::size_t bytes,
                                                         Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT void* caching_allocator_alloc(std::size_t bytes, Device device,
                                                         const Stream& stream);
/// Frees memory of `caching_allocator_alloc`, of any device. Work that is queued on its stream may still use
/// it. nullptr is allowed. Throws Error(invalid_argument) if `address` is anything else, such as a tensor's
/// address, or has been freed already.
TUTTI_EXPORT void caching_allocator_delete(void* address);

/// Returns the allocator of device memory for tensors: "native" (the caching allocator), or "pluggable"
/// (`change_current_allocator`).
[[nodiscard]] TUTTI_EXPORT std::string_view get_allocator_backend();

/// Gives every cached segment without a block in use back to its device, on all devices, except those that
/// belong to a graph. It waits for the devices, whose queues may still use cached memory. Devices with a
/// stream that is being captured cannot be waited for, so their cached segments stay. Segments that other
/// ranks of a communicator have open go back when those ranks have closed them; the call waits a second for
/// that at most. The rest goes back with a later call; until then it is not counted in `memory_stats`, and
/// serves requests before the device is asked for more.
TUTTI_EXPORT void empty_cache();
/// Gives cached pinned host memory back to the system, as `empty_cache` does for device memory.
TUTTI_EXPORT void empty_pinned_cache();

/// Statistics of the allocator of pinned host memory. A block serves only requests of its size class, of
/// which there are four per doubling from 4 KiB on, and is never cut.
struct PinnedMemoryStats {
  MemoryCounter allocation;         ///< blocks in use
  MemoryCounter active;             ///< blocks in use, or given up while streams may use them
  MemoryCounter segment;            ///< blocks obtained from the system, in use or cached
  MemoryCounter allocated_bytes;    ///< in blocks in use
  MemoryCounter active_bytes;       ///< in active blocks
  MemoryCounter reserved_bytes;     ///< in all blocks
  std::int64_t num_host_alloc = 0;  ///< blocks obtained from the system
  std::int64_t num_host_free = 0;   ///< blocks given back to it
};

/// Returns the present statistics, updated as those of `memory_stats` are.
[[nodiscard]] TUTTI_EXPORT PinnedMemoryStats pinned_memory_stats();
TUTTI_EXPORT void reset_peak_pinned_memory_stats();
TUTTI_EXPORT void reset_accumulated_pinned_memory_stats();

// Deprecated names.

[[deprecated("use memory_reserved")]] [[nodiscard]] TUTTI_EXPORT std::size_t memory_cached(
    Device device = Device::current());
[[deprecated("use max_memory_reserved")]] [[nodiscard]] TUTTI_EXPORT std::size_t max_memory_cached(
    Device device = Device::current());
/// Resets all peaks, as `reset_peak_memory_stats` does.
[[deprecated("use reset_peak_memory_stats")]] TUTTI_EXPORT void reset_max_memory_allocated(
    Device device = Device::current());
/// Resets all peaks, as `reset_peak_memory_stats` does.
[[deprecated("use reset_peak_memory_stats")]] TUTTI_EXPORT void reset_max_memory_cached(
    Device device = Device::current());

}  // namespace tutti
