// SPDX-License-Identifier: Apache-2.0
#include "tutti/memory.hpp"

#include "thread_current.hpp"

#include <exception>
#include <iterator>
#include <utility>

namespace tutti {
namespace {

CachingAllocator& allocator_of(Device device, std::string_view function) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, function);
  runtime.release_collected();
  return runtime.allocator(index);
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

std::vector<MemorySegment> memory_snapshot() {
  Runtime& runtime = Runtime::get();
  runtime.release_collected();
  std::vector<MemorySegment> result;
  for (int device = 0; device < runtime.device_count(); ++device) {
    std::vector<MemorySegment> segments = runtime.allocator(device).snapshot();
    result.insert(result.end(), std::move_iterator(segments.begin()), std::move_iterator(segments.end()));
  }
  return result;
}

void empty_cache() {
  Runtime& runtime = Runtime::get();
  runtime.release_collected();
  std::exception_ptr failure;  // of work queued earlier, which keeps no memory
  const auto empty_all = [&] {
    for (int device = 0; device < runtime.device_count(); ++device) {
      try {
        runtime.allocator(device).empty_cache();
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
    }
  };
  empty_all();
  // Devices have been waited for: so graphs that were let go of while they ran are done.
  if (runtime.release_collected()) empty_all();
  if (failure) std::rethrow_exception(failure);
}

void empty_pinned_cache() {
  Runtime& runtime = Runtime::get();
  runtime.release_collected();
  runtime.pinned().empty_cache();
}

}  // namespace tutti
