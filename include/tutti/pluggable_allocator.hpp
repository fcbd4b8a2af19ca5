// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

/// Device memory for tensors from functions of the program's own, instead of the caching allocator.
namespace tutti {

class PluggedFunctions;

/// Two functions, from a shared object or given, that provide device memory.
///
/// `alloc(bytes, device, stream)` returns the address of at least `bytes` bytes of the device, which the work
/// queued on `stream` from then on may use, or nullptr if there are none: that becomes an OutOfMemoryError.
/// `free(address, bytes, device, stream)` gets back what it gave, with the same arguments, when the last
/// tensor over it is gone: work queued on `stream` may still use it, and so that stream has been made to wait
/// for all others named by `record_stream`. What is dropped while a graph is captured that may use it comes
/// back when that is gone and its launches are done. Streams are native handles (`Stream::native_handle`).
/// Both are called with `device` current, from whichever thread makes or drops a tensor, or the graph, also
/// from several at a time. `alloc` may throw what it likes; `free` must not throw: that ends the program.
class TUTTI_EXPORT CUDAPluggableAllocator {
 public:
  using Alloc = std::function<void*(std::size_t bytes, int device, void* stream)>;
  using Free = std::function<void(void* address, std::size_t bytes, int device, void* stream)>;

  /// Loads the shared object and looks its functions up, which are `extern "C"`:
  ///
  ///     void* ALLOC(ssize_t bytes, int device, cudaStream_t stream);
  ///     void FREE(void* address, ssize_t bytes, int device, cudaStream_t stream);
  ///
  /// It stays loaded. Throws Error(invalid_argument), naming what is missing, with the loader's reason.
  CUDAPluggableAllocator(const std::string& shared_object, const std::string& alloc_name,
                         const std::string& free_name);
  /// Throws Error(invalid_argument) if one is empty.
  CUDAPluggableAllocator(Alloc alloc, Free free);

 private:
  friend TUTTI_EXPORT void change_current_allocator(const CUDAPluggableAllocator& allocator);
  std::shared_ptr<const PluggedFunctions> functions_;
};

/// Tensors, and `caching_allocator_alloc`, get device memory from `allocator` from now on, on all devices.
/// Only before the first of them has got any, and only once: throws Error(invalid_argument) otherwise, as
/// memory would go back to where it did not come from. `virtual_devices::start` brings the caching allocator
/// back.
///
/// What the library needs for itself still comes from the caching allocator. The figures of
/// `tutti/memory.hpp` tell of that one, and `set_per_process_memory_fraction` bounds it only. Tensors made
/// while a stream is captured into a graph are refused with Error(unsupported): graphs need pools of their
/// own.
TUTTI_EXPORT void change_current_allocator(const CUDAPluggableAllocator& allocator);

/// Memory from the device itself, past every allocator: what a pluggable allocator can be made of on every
/// backend. Aligned to 512 bytes at least; nullptr if the device has no more. On GPUs it is `cudaMalloc`.
/// Throws Error(invalid_argument) for an unknown device.
[[nodiscard]] TUTTI_EXPORT void* device_malloc(std::size_t bytes, Device device = Device::current());
/// Gives it back, at once: nothing queued may still use it. nullptr is allowed. What was not obtained from
/// `device` surfaces as a failure there, as one of queued work does. Throws Error(invalid_argument) for an
/// unknown device.
TUTTI_EXPORT void device_free(void* address, Device device);

}  // namespace tutti
