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

/// What the caching allocators hold, and how to give it back.
///
/// Each device has one caching allocator, ordered by streams: memory a tensor gives up is kept for later
/// tensors of the same stream instead of going back to the device. Requests are rounded up to 512 bytes.
/// Those of up to 1 MiB are cut from segments of 2 MiB (the small pool), those above 1 MiB and under 10 MiB
/// from segments of 20 MiB, and larger ones get segments of their own size rounded up to 2 MiB (the large
/// pool).
///
/// Requests for streams that are being captured into a graph are served from segments of that graph's own,
/// which serve nobody else until the graph is gone, and do not go back to the device before.
///
/// `TUTTI_ALLOC_CONF` tunes the allocators: `name:value` pairs with commas between them. Unset, nothing of
/// this is done.
///  - `max_split_size_mb:N` (more than 20): blocks of N MiB and more are not cut. They serve requests of as
///    many and more only, which they exceed by less than 20 MiB. Keeps large segments whole where sizes vary.
///  - `garbage_collection_threshold:F` (more than 0, less than 1): before a device is asked for memory that
///    would bring what is reserved above this part of what the process may have
///    (`set_per_process_memory_fraction`), cached segments go back to it, those unused longest first, until
///    it would not. That waits for the device, and is left out during a capture.
///  - `expandable_segments:True` (or `False`): a stream's requests are cut from a range of addresses for each
///    pool, which gets memory as it is needed, in pieces of 2 MiB for the small pool and 20 MiB for the
///    large. Whole pieces without a block in use go back to the device wherever they lie: none are lost where
///    sizes vary. Blocks are always cut. Other processes cannot open such memory: `SharedTensor` refuses it,
///    and calls of ranks copy it to memory that they can. Where the driver has no such ranges, a warning says
///    so once, and segments are ordinary ones.
/// Anything else is an Error(invalid_argument) of the first call that needs a device.
///
/// All functions are thread-safe and throw Error(invalid_argument) for an unknown device.
namespace tutti {

/// One quantity over time. `peak` is the greatest `current` since the start or the last
/// `reset_peak_memory_stats`. `current == allocated - freed`, but for what was there at the last
/// `reset_accumulated_memory_stats`.
struct MemoryCounter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  ///< all increases since the start or the last reset
  std::int64_t freed = 0;      ///< all decreases since the start or the last reset
};

/// A quantity for both pools together and for each.
struct PooledCounter {
  MemoryCounter all;
  MemoryCounter small_pool;
  MemoryCounter large_pool;
};

/// What one device's allocator has done. At any time each `current` equals the matching sum over
/// `memory_snapshot`. Both tell of now: a block given up while other streams used it (`record_stream`) is
/// cached, and no longer active, from the first call on after those streams have come past their work; the
/// next request after somebody has waited for that may get it.
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
/// Bytes in blocks in use.
[[nodiscard]] TUTTI_EXPORT std::size_t memory_allocated(Device device = Device::current());
/// The most bytes that were in use at a time, since the start or the last `reset_peak_memory_stats`.
[[nodiscard]] TUTTI_EXPORT std::size_t max_memory_allocated(Device device = Device::current());
/// Bytes in segments, in use or cached.
[[nodiscard]] TUTTI_EXPORT std::size_t memory_reserved(Device device = Device::current());
/// The most bytes that were reserved at a time, since the start or the last `reset_peak_memory_stats`.
[[nodiscard]] TUTTI_EXPORT std::size_t max_memory_reserved(Device device = Device::current());
/// Makes every `peak` of the device's statistics equal to its `current`.
TUTTI_EXPORT void reset_peak_memory_stats(Device device = Device::current());
/// Sets every `allocated` and `freed` of the device's statistics, and its `num_…`, to 0.
TUTTI_EXPORT void reset_accumulated_memory_stats(Device device = Device::current());
/// The segments of all devices, by device, then by address.
[[nodiscard]] TUTTI_EXPORT std::vector<MemorySegment> memory_snapshot();
/// The same as one line of JSON, for tools:
///
///     {"schema": "tutti-memory-snapshot/1", "segments": [
///       {"device": 0, "address": 139637976727552, "total_size": 2097152, "allocated_size": 1024,
///        "active_size": 1024, "requested_size": 1000, "stream": 0, "stream_device": 0,
///        "segment_type": "small", "segment_pool_id": 0, "is_expandable": false, "blocks": [
///          {"address": 139637976727552, "size": 1024, "requested_size": 1000, "state": "active_allocated"},
///          {"address": 139637976728576, "size": 2096128, "requested_size": 0, "state": "inactive"}]}]}
///
/// Sizes are bytes. `segment_type` is "small" or "large"; `segment_pool_id` is `MemorySegment::graph_pool`;
/// a block's state is "active_allocated" (`in_use`), "active_awaiting_free" or "inactive" (`cached`).
[[nodiscard]] TUTTI_EXPORT std::string memory_snapshot_json();

enum class SummaryDetail : std::uint8_t { full, abbreviated };

/// A table of the device's statistics for people: a row for each quantity, with its current value, peak, and
/// what was allocated and freed in total; in full, also for each of the two pools.
[[nodiscard]] TUTTI_EXPORT std::string memory_summary(Device device = Device::current(),
                                                      SummaryDetail detail = SummaryDetail::full);

/// Lets the process reserve this part of the device's memory at most, from 0 to 1: what would need more is
/// refused as if the device had no more, with OutOfMemoryError in the end. At first it is 1. What is reserved
/// already stays. Throws Error(invalid_argument) for another number.
TUTTI_EXPORT void set_per_process_memory_fraction(double fraction, Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT double get_per_process_memory_fraction(Device device = Device::current());

/// At least `bytes` bytes from the caching allocator, for first use on the current stream of the device, or
/// on `stream`, which may be another device's. Zero bytes give an address of their own. It is a tensor's
/// memory without the tensor: what holds of streams and captures holds here. Throws OutOfMemoryError.
///
/// Cost: a hit in the cache takes no heap memory and one lock, which threads that use other devices do not
/// share. A size costs least that is asked for and given back again and again, on one stream, while nobody
/// else asks for memory of the device.
[[nodiscard]] TUTTI_EXPORT void* caching_allocator_alloc(std::size_t bytes,
                                                         Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT void* caching_allocator_alloc(std::size_t bytes, Device device,
                                                         const Stream& stream);
/// Gives back what `caching_allocator_alloc` gave, whichever device's it is; work queued on its stream may
/// still use it. nullptr is allowed. Throws Error(invalid_argument) if `address` is anything else, such as a
/// tensor's, or has been given back already.
TUTTI_EXPORT void caching_allocator_delete(void* address);

/// What device memory for tensors comes from: "native" (the caching allocator), or "pluggable"
/// (`change_current_allocator`).
[[nodiscard]] TUTTI_EXPORT std::string_view get_allocator_backend();

/// Gives every cached segment without a block in use back to its device, on all devices, but for those that
/// belong to a graph. Waits for the devices, as their queues may still use cached memory; what is cached for
/// devices of which a stream is being captured, for which nobody can wait, stays. Segments that other ranks
/// of a communicator have open go back after those have closed them, for which this call waits a second at
/// most. What remains goes back with a later call; until then it belongs to no figure of `memory_stats`, and
/// serves requests before the device is asked for more.
TUTTI_EXPORT void empty_cache();
/// The same for pinned host memory.
TUTTI_EXPORT void empty_pinned_cache();

/// What the allocator of pinned host memory has done. A block serves requests of its size only, from 4 KiB on
/// four sizes for each doubling, and is as long as what was obtained from the system.
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

/// Tells of now, as `memory_stats` does.
[[nodiscard]] TUTTI_EXPORT PinnedMemoryStats pinned_memory_stats();
TUTTI_EXPORT void reset_peak_pinned_memory_stats();
TUTTI_EXPORT void reset_accumulated_pinned_memory_stats();

// Names of former years.

[[deprecated("use memory_reserved")]] [[nodiscard]] TUTTI_EXPORT std::size_t memory_cached(
    Device device = Device::current());
[[deprecated("use max_memory_reserved")]] [[nodiscard]] TUTTI_EXPORT std::size_t max_memory_cached(
    Device device = Device::current());
/// Resets all peaks, as `reset_peak_memory_stats`.
[[deprecated("use reset_peak_memory_stats")]] TUTTI_EXPORT void reset_max_memory_allocated(
    Device device = Device::current());
/// Resets all peaks, as `reset_peak_memory_stats`.
[[deprecated("use reset_peak_memory_stats")]] TUTTI_EXPORT void reset_max_memory_cached(
    Device device = Device::current());

}  // namespace tutti
