// SPDX-License-Identifier: Apache-2.0
#include "tutti/memory.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/open_captures.hpp"
#include "storage/pluggable_allocator.hpp"
#include "storage/storage.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/thread_streams.hpp"
#include "tutti/error.hpp"

#include <exception>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

CachingAllocator& allocator_of(Device device, std::string_view function) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, function);
  runtime.part<LateReleases>().release();
  return runtime.part<Allocators>().of(index);
}

void* allocate_raw(Runtime& runtime, int device, std::size_t bytes, backend::StreamRef stream) {
  auto& plugged = runtime.part<PluggedAllocator>();
  plugged.late_releases().release();
  if (!plugged.leaves_to_native()) [[unlikely]]
    return plugged.allocate_raw(device, bytes, stream);
  Block* const block = allocate_block(plugged, device, bytes, stream);
  block->is_raw = true;
  return block->address;
}

/// Returns whether it was ours to free.
bool free_raw(Runtime& runtime, void* address) {
  auto& allocators = runtime.part<Allocators>();
  Segment* const segment = allocators.segments().find(address);
  if (segment == nullptr) return runtime.part<PluggedAllocator>().free_raw(address);
  return allocators.of(segment->device).free_raw(*segment, address, OpenCapture::pool_of_calling_thread());
}

}  // namespace

MemoryStats memory_stats(Device device) {
  return allocator_of(device, "memory_stats").stats();
}

std::size_t memory_allocated(Device device) {
  return static_cast<std::size_t>(
      allocator_of(device, "memory_allocated").stats().allocated_bytes.all.current);
}

std::size_t max_memory_allocated(Device device) {
  return static_cast<std::size_t>(
      allocator_of(device, "max_memory_allocated").stats().allocated_bytes.all.peak);
}

std::size_t memory_reserved(Device device) {
  return static_cast<std::size_t>(allocator_of(device, "memory_reserved").stats().reserved_bytes.all.current);
}

std::size_t max_memory_reserved(Device device) {
  return static_cast<std::size_t>(
      allocator_of(device, "max_memory_reserved").stats().reserved_bytes.all.peak);
}

void reset_peak_memory_stats(Device device) {
  allocator_of(device, "reset_peak_memory_stats").reset_peak_stats();
}

void reset_accumulated_memory_stats(Device device) {
  allocator_of(device, "reset_accumulated_memory_stats").reset_accumulated_stats();
}

void set_per_process_memory_fraction(double fraction, Device device) {
  CachingAllocator& allocator = allocator_of(device, "set_per_process_memory_fraction");
  const bool is_fraction = fraction >= 0 && fraction <= 1;  // no NaN is
  if (!is_fraction) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("set_per_process_memory_fraction: fraction is {}, expected 0 to 1", fraction));
  }
  allocator.set_memory_fraction(fraction);
}

double get_per_process_memory_fraction(Device device) {
  return allocator_of(device, "get_per_process_memory_fraction").memory_fraction();
}

void* caching_allocator_alloc(std::size_t bytes, Device device) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "caching_allocator_alloc");
  return allocate_raw(runtime, index, bytes, current_stream_ref(runtime, index));
}

void* caching_allocator_alloc(std::size_t bytes, Device device, const Stream& stream) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "caching_allocator_alloc");
  return allocate_raw(runtime, index, bytes, StreamAccess::ref(stream));
}

void caching_allocator_delete(void* address) {
  if (address == nullptr) return;
  // None in a process forked off from one that has allocated it: the memory is its parent's.
  Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime != nullptr && !free_raw(*runtime, address)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("caching_allocator_delete: address is {}, expected one from "
                            "caching_allocator_alloc that has not been freed",
                            address));
  }
}

std::string_view get_allocator_backend() {
  return Runtime::get().part<PluggedAllocator>().is_used() ? "pluggable" : "native";
}

PinnedMemoryStats pinned_memory_stats() {
  Runtime& runtime = Runtime::get();
  runtime.part<LateReleases>().release();
  return runtime.part<PinnedAllocator>().stats();
}

void reset_peak_pinned_memory_stats() {
  Runtime::get().part<PinnedAllocator>().reset_peak_stats();
}

void reset_accumulated_pinned_memory_stats() {
  Runtime::get().part<PinnedAllocator>().reset_accumulated_stats();
}

std::size_t memory_cached(Device device) {
  return memory_reserved(device);
}

std::size_t max_memory_cached(Device device) {
  return max_memory_reserved(device);
}

void reset_max_memory_allocated(Device device) {
  reset_peak_memory_stats(device);
}

void reset_max_memory_cached(Device device) {
  reset_peak_memory_stats(device);
}

std::vector<MemorySegment> memory_snapshot() {
  Runtime& runtime = Runtime::get();
  runtime.part<LateReleases>().release();
  std::vector<MemorySegment> result;
  for (int device = 0; device < runtime.device_count(); ++device) {
    std::vector<MemorySegment> segments = runtime.part<Allocators>().of(device).snapshot();
    result.insert(result.end(), std::move_iterator(segments.begin()), std::move_iterator(segments.end()));
  }
  return result;
}

void empty_cache() {
  const BlockingCall blocks("empty_cache");
  Runtime& runtime = Runtime::get();
  runtime.part<Allocators>().reclaim();
  std::exception_ptr failure;  // of work queued earlier, which keeps no memory
  const auto empty_all = [&] {
    for (int device = 0; device < runtime.device_count(); ++device) {
      try {
        runtime.part<Allocators>().of(device).empty_cache();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  };
  empty_all();
  // Devices have been waited for: so graphs that were let go of while they ran are done.
  if (runtime.part<LateReleases>().release()) empty_all();
  if (failure) std::rethrow_exception(failure);
}

void empty_pinned_cache() {
  const BlockingCall blocks("empty_pinned_cache");
  Runtime& runtime = Runtime::get();
  runtime.part<LateReleases>().release();
  runtime.part<PinnedAllocator>().empty_cache();
}

}  // namespace tutti
