// SPDX-License-Identifier: Apache-2.0
#include "storage/storage.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/graph_pools/graph_captures.hpp"
#include "allocator/pinned_allocator.hpp"
#include "base/format_bytes.hpp"
#include "device/open_captures.hpp"
#include "storage/pluggable_allocator.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "tutti/error.hpp"

#include <cstdint>
#include <new>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::align_val_t pageable_alignment{64};

}  // namespace

Block* allocate_block(PluggedAllocator& parts, int device, std::size_t bytes, backend::StreamRef stream) {
  CachingAllocator& allocator = parts.allocators().of(device);
  const GraphPool graph_pool = parts.captures().pool_of(stream);
  try {
    return allocator.allocate(bytes, stream, graph_pool);
  } catch (const OutOfMemoryError&) {
    // Memory that was shared may be back, which counts as in use until somebody asks for it.
    if (!parts.allocators().reclaim()) throw;
  }
  return allocator.allocate(bytes, stream, graph_pool);
}

detail::IntrusivePtr<Storage> DeviceStorage::allocate(Runtime& runtime, int device, std::size_t bytes,
                                                      backend::StreamRef stream) {
  auto& plugged = runtime.part<PluggedAllocator>();
  plugged.late_releases().release();
  if (!plugged.leaves_to_native()) [[unlikely]]
    return plugged.allocate(device, bytes, stream);
  return own(plugged.allocators().of(device), allocate_block(plugged, device, bytes, stream), bytes, stream,
             device);
}

detail::IntrusivePtr<Storage> DeviceStorage::allocate_from(GraphPool graph_pool, Runtime& runtime, int device,
                                                           std::size_t bytes, backend::StreamRef stream) {
  CachingAllocator& allocator = runtime.part<Allocators>().of(device);
  return own(allocator, allocator.allocate(bytes, stream, graph_pool), bytes, stream, device);
}

detail::IntrusivePtr<Storage> DeviceStorage::own(CachingAllocator& allocator, Block* block, std::size_t bytes,
                                                 backend::StreamRef stream, int device) {
  try {
    return detail::IntrusivePtr<Storage>::adopt(
        new DeviceStorage(allocator, block, bytes, Device(device), stream));
  } catch (...) {
    allocator.free(block);
    throw;
  }
}

DeviceStorage::DeviceStorage(CachingAllocator& allocator, Block* block, std::size_t bytes, Device device,
                             backend::StreamRef stream)
    : Storage(CachingAllocator::address(block), bytes, device, MemoryOrigin::library),
      allocator_(allocator),
      block_(block),
      recorded_(stream.device == device.index() ? stream.handle
                                                : reinterpret_cast<backend::StreamHandle>(this)) {}

DeviceStorage::~DeviceStorage() {
  allocator_.free(block_, OpenCapture::pool_of_calling_thread());
}

void DeviceStorage::record_stream(const Stream& stream) {
  const backend::StreamRef used = StreamAccess::ref(stream);
  if (graph_keeps(*this, used) || is_recorded_on(used)) return;
  allocator_.record_stream(block_, used);
  if (used.device == device().index()) recorded_.store(used.handle, std::memory_order_relaxed);
}

detail::IntrusivePtr<Storage> PinnedStorage::allocate(Runtime& runtime, std::size_t bytes) {
  runtime.part<LateReleases>().release();
  PinnedAllocator& allocator = runtime.part<PinnedAllocator>();
  PinnedBlock* block = allocator.allocate(bytes);
  try {
    return detail::IntrusivePtr<Storage>::adopt(new PinnedStorage(allocator, block, bytes));
  } catch (...) {
    allocator.free(block);
    throw;
  }
}

PinnedStorage::PinnedStorage(PinnedAllocator& allocator, PinnedBlock* block, std::size_t bytes)
    : Storage(PinnedAllocator::address(block), bytes, Device::host(), MemoryOrigin::library),
      allocator_(allocator),
      block_(block) {}

PinnedStorage::~PinnedStorage() {
  allocator_.free(block_, OpenCapture::pool_of_calling_thread());
}

void PinnedStorage::record_stream(const Stream& stream) {
  const backend::StreamRef used = StreamAccess::ref(stream);
  if (!graph_keeps(*this, used)) allocator_.record_stream(block_, used);
}

detail::IntrusivePtr<Storage> PageableStorage::allocate(std::size_t bytes) {
  void* data = ::operator new(bytes, pageable_alignment, std::nothrow);
  if (data == nullptr) {
    OutOfMemoryError::Figures figures;
    figures.requested = bytes;
    throw OutOfMemoryError(fmt::format("out of host memory: requested {}", format_bytes(bytes)), figures);
  }
  try {
    return detail::IntrusivePtr<Storage>::adopt(new PageableStorage(data, bytes));
  } catch (...) {
    ::operator delete(data, pageable_alignment);
    throw;
  }
}

PageableStorage::~PageableStorage() {
  ::operator delete(data(), pageable_alignment);
}

}  // namespace tutti
