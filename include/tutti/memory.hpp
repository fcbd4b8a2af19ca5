// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <cstdint>
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
/// All functions are thread-safe and throw Error(invalid_argument) for an unknown device.
namespace tutti {

/// One quantity over time. `current == allocated - freed`, and `peak` is the greatest `current` since the
/// start or the last `reset_peak_memory_stats`.
struct MemoryCounter {
  std::int64_t current = 0;
  std::int64_t peak = 0;
  std::int64_t allocated = 0;  ///< all increases since the start
  std::int64_t freed = 0;      ///< all decreases since the start
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
  std::int64_t num_device_alloc = 0;  ///< segments obtained from the device, or taken back (`empty_cache`)
  std::int64_t num_device_free = 0;   ///< segments given up
};

enum class MemoryPool : std::uint8_t { small_pool, large_pool };

enum class BlockState : std::uint8_t {
  in_use,         ///< belongs to a tensor
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

/// One piece of memory obtained from a device, and its blocks in ascending order without gaps.
struct MemorySegment {
  int device = -1;
  const void* address = nullptr;
  std::size_t bytes = 0;
  MemoryPool pool = MemoryPool::small_pool;
  void* stream = nullptr;        ///< native handle of the stream whose requests the segment serves
  int stream_device = -1;        ///< the device of that stream
  std::uint64_t graph_pool = 0;  ///< tells the private pools of graphs (`Graph`) apart; 0 for none
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
/// The segments of all devices, by device, then by address.
[[nodiscard]] TUTTI_EXPORT std::vector<MemorySegment> memory_snapshot();

/// Gives every cached segment without a block in use back to its device, on all devices, but for those that
/// belong to a graph. Waits for the
/// devices, as their queues may still use cached memory; not for use during a stream capture. Segments that
/// other ranks of a communicator have open go back after those have closed them, for which this call waits a
/// second at most. What remains goes back with a later call; until then it belongs to no figure of
/// `memory_stats`, and serves requests before the device is asked for more.
TUTTI_EXPORT void empty_cache();
/// The same for pinned host memory.
TUTTI_EXPORT void empty_pinned_cache();

}  // namespace tutti
