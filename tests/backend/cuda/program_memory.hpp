// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

namespace tutti::test {

/// The ways in which CUDA gives memory to programs, other than `cudaMalloc`.
enum class ProgramMemory {
  pieces,                  ///< `cuMemMap`, in pieces of the least size, for descriptors
  pieces_without_handles,  ///< the same, but not to be shared
  default_pool,            ///< `cudaMallocAsync`
  shareable_pool,          ///< `cudaMallocFromPoolAsync`, of a pool for descriptors
  managed,                 ///< `cudaMallocManaged`
  managed_on_host,         ///< the same, and it prefers to be on the host
};
/// Memory that is freed with the last copy, after waiting for the device.
using OwnedMemory = std::shared_ptr<void>;

/// Returns new memory of a device, which becomes the current one. Throws std::runtime_error.
[[nodiscard]] OwnedMemory allocate(ProgramMemory kind, int device, std::size_t bytes);

}  // namespace tutti::test
