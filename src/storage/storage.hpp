// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"
#include "tutti/storage.hpp"

#include <atomic>
#include <cstddef>

namespace tutti {

class PluggedAllocator;

/// Allocates from the caching allocator of `device`, for first use on `stream`. Throws OutOfMemoryError.
[[nodiscard]] Block* allocate_block(PluggedAllocator& parts, int device, std::size_t bytes,
                                    backend::StreamRef stream);

/// Memory of the caching allocator. Freed (back to the cache) with its last owner.
class DeviceStorage final : public Storage {
 public:
  /// Allocates at least `bytes` bytes of `device`, for first use on `stream`. Throws OutOfMemoryError.
  [[nodiscard]] static detail::IntrusivePtr<Storage> allocate(Runtime& runtime, int device, std::size_t bytes,
                                                              backend::StreamRef stream);
  /// Allocates in the same way from `graph_pool`, whatever allocator is plugged in.
  [[nodiscard]] static detail::IntrusivePtr<Storage> allocate_from(GraphPool graph_pool, Runtime& runtime,
                                                                   int device, std::size_t bytes,
                                                                   backend::StreamRef stream);
  /// `stream` is the one the block was allocated for.
  DeviceStorage(CachingAllocator& allocator, Block* block, std::size_t bytes, Device device,
                backend::StreamRef stream);
  ~DeviceStorage() override;
  void record_stream(const Stream& stream) override;
  /// Returns whether the allocator knows already that `stream` uses the memory, for a stream of its own
  /// device.
  [[nodiscard]] bool is_recorded_on(backend::StreamRef stream) const noexcept {
    return stream.device == device().index() && recorded_.load(std::memory_order_relaxed) == stream.handle;
  }

 private:
  /// Takes over the block, also if it throws.
  [[nodiscard]] static detail::IntrusivePtr<Storage> own(CachingAllocator& allocator, Block* block,
                                                         std::size_t bytes, backend::StreamRef stream,
                                                         int device);

  CachingAllocator& allocator_;
  Block* block_;
  /// The handle of the stream of its own device that was named last; at first, the stream of the allocation.
  /// If there is none, the object's own address, which is no stream's handle.
  std::atomic<backend::StreamHandle> recorded_;
};

/// Memory of the pinned allocator.
class PinnedStorage final : public Storage {
 public:
  [[nodiscard]] static detail::IntrusivePtr<Storage> allocate(Runtime& runtime, std::size_t bytes);
  PinnedStorage(PinnedAllocator& allocator, PinnedBlock* block, std::size_t bytes);
  ~PinnedStorage() override;
  void record_stream(const Stream& stream) override;

 private:
  PinnedAllocator& allocator_;
  PinnedBlock* block_;
};

/// Ordinary host memory, aligned to 64 bytes.
class PageableStorage final : public Storage {
 public:
  [[nodiscard]] static detail::IntrusivePtr<Storage> allocate(std::size_t bytes);
  PageableStorage(void* data, std::size_t bytes)
      : Storage(data, bytes, Device::host(), MemoryOrigin::library) {}
  ~PageableStorage() override;
};

/// Returns whether `storage.record_stream` would do nothing; costs less to ask than to call.
[[nodiscard]] inline bool is_recorded_on(const Storage& storage, backend::StreamRef stream) noexcept {
  const bool is_device_storage = storage.is_library_memory() && !storage.device().is_host();
  return is_device_storage && static_cast<const DeviceStorage&>(storage).is_recorded_on(stream);
}

}  // namespace tutti
