// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/shared_pieces.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda.h>

namespace tutti::backend::cuda {

/// Shares memory of the driver's pools (`cudaMallocAsync`) with other processes and other devices.
/// Thread-safe.
///
/// Other processes can open memory of pools that were made for descriptors
/// (`cudaMemHandleTypePosixFileDescriptor`), which the default pools of devices are not. Each opening imports
/// the pool anew.
class PooledMemory {
 public:
  /// Returns the pool that the memory at an address is from; nullptr if it is from none.
  [[nodiscard]] static CUmemoryPool pool_of(const void* address);
  /// Offers the allocation around these bytes (`MemoryCalls::share_pieces`).
  [[nodiscard]] static std::unique_ptr<SharedPieces> share(int device, void* address, std::size_t bytes,
                                                           Audience audience);
  /// Lets other devices use all memory of the pool that the address is in. Throws Error(unsupported).
  static void give_access(int device, void* address, const std::vector<int>& accessors);

  /// Returns true if a device may use all memory of the pool that the address is in.
  [[nodiscard]] static bool is_open_to(int device, const void* address);

  // See `AddressRanges`.
  [[nodiscard]] void* open(int device, const SharedPieces::Opened& opened);
  [[nodiscard]] bool close(void* address, int& status) noexcept;

 private:
  struct Imported {
    CUdeviceptr memory = 0;
    CUmemoryPool pool = nullptr;
  };
  std::mutex mutex_;
  std::map<const void*, Imported> opened_;  ///< by the address that `open` returned
};

}  // namespace tutti::backend::cuda
