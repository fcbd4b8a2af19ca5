// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

/// Lets functions of the program provide device memory for tensors, instead of the caching allocator.
namespace tutti {

class PluggedFunctions;

/// A pair of functions that provide device memory, either loaded from a shared object or passed in.
///
/// `alloc(bytes, device, stream)` returns the address of at least `bytes` bytes of the device, for use by
/// work that is queued on `stream` from then on, or nullptr if there are none, which becomes an
/// OutOfMemoryError. `free(address, bytes, device, stream)` takes memory back, with the same arguments, when
/// the last tensor over it is gone. Work queued on `stream` may still use it; that stream has been made to
/// wait for all others named by `record_stream`. Memory that is dropped while a graph that may use it is
/// captured comes back when the graph is destroyed and its launches are done. Streams are native handles
/// (`Stream::native_handle`). Both are called with `device` current, from whichever thread makes or drops a
/// tensor or the graph, possibly from several at once. `alloc` may throw anything; `free` must not throw,
/// which would terminate the program.
class TUTTI_EXPORT CUDAPluggableAllocator {
 public:
  using Alloc = std::function<void*(std::size_t bytes, int device, void* stream)>;
  using Free = std::function<void(void* address, std::size_t bytes, int device, void* stream)>;

  /// Loads the shared object and looks up its functions, which are declared `extern "C"`:
  ///
  ///     void* ALLOC(ssize_t bytes, int device, cudaStream_t stream);
  ///     void FREE(void* address, ssize_t bytes, int device, cudaStream_t stream);
  ///
  /// The shared object stays loaded. Throws Error(invalid_argument), naming what is missing, with the
  /// loader's reason.
  CUDAPluggableAllocator(const std::string& shared_object, const std::string& alloc_name,
                         const std::string& free_name);
  /// Throws Error(invalid_argument) if a function is empty.
  CUDAPluggableAllocator(Alloc alloc, Free free);

 private:
  friend TUTTI_EXPORT void change_current_allocator(const CUDAPluggableAllocator& allocator);
  std::shared_ptr<const PluggedFunctions> functions_;
};

/// Makes `allocator` the source of device memory for tensors and `caching_allocator_alloc`, on all devices,
/// from now on. Can be called once only, before the first of them has allocated device memory: throws
/// Error(invalid_argument) otherwise. `virtual_devices::start` brings the caching allocator back.
///
/// The library's own memory still comes from the caching allocator. The statistics of `tutti/memory.hpp` and
/// the limit of `set_per_process_memory_fraction` apply only to that one. Making a tensor while a stream is
/// captured into a graph throws Error(unsupported), because graphs need private pools.
TUTTI_EXPORT void change_current_allocator(const CUDAPluggableAllocator& allocator);

/// Allocates memory from the device itself, bypassing every allocator, so that pluggable allocators can be
/// written for every backend. On GPUs it is `cudaMalloc`. The address is aligned to 512 bytes at least;
/// nullptr if the device has no more. Throws Error(invalid_argument) for an unknown device.
[[nodiscard]] TUTTI_EXPORT void* device_malloc(std::size_t bytes, Device device = Device::current());
/// Allocates memory like `device_malloc`, but by pieces, as PyTorch's `expandable_segments` do: reserves
/// addresses, and maps pieces of `piece_bytes` to them one after another (on GPUs by `cuMemCreate`, for file
/// descriptors). Both numbers are rounded up to the device's unit of such memory, 2 MiB, and `bytes` to whole
/// pieces. Throws Error(unsupported) if the device has no such memory.
[[nodiscard]] TUTTI_EXPORT void* device_malloc_in_pieces(std::size_t bytes, std::size_t piece_bytes,
                                                         Device device = Device::current());
/// Frees memory of `device_malloc` or `device_malloc_in_pieces` at once: nothing queued may still use it.
/// nullptr is allowed. An address that was not obtained from `device` surfaces as a failure there, like one
/// of queued work. Throws Error(invalid_argument) for an unknown device.
TUTTI_EXPORT void device_free(void* address, Device device);

}  // namespace tutti
