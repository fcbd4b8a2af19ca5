// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/shared_pieces.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::backend::cuda {

/// Manages ranges of addresses of GPUs to which memory is mapped piece by piece (see `MemoryCalls`), through
/// the driver.
///
/// Access of peers that `cudaDeviceEnablePeerAccess` allows does not apply to such memory: it is granted for
/// each piece. Thread-safe. Calls need a current context.
class AddressRanges {
 public:
  explicit AddressRanges(int device_count) : devices_(static_cast<std::size_t>(device_count)) {}
  AddressRanges(const AddressRanges&) = delete;
  AddressRanges& operator=(const AddressRanges&) = delete;

  /// Returns 0 if the driver of `device` has no such ranges.
  [[nodiscard]] std::size_t page_bytes(int device);
  [[nodiscard]] void* reserve(int device, std::size_t bytes);
  [[nodiscard]] bool map(int device, void* address, std::size_t bytes);
  /// Returns a status of the driver, 0 for success.
  [[nodiscard]] int unmap(int device, void* address, std::size_t bytes) noexcept;
  [[nodiscard]] int release(void* address, std::size_t bytes) noexcept;
  /// Lets `accessor` use all present and future memory of `owner`.
  void give_access(int owner, int accessor);

  // See `MemoryCalls`; for memory of any origin.
  [[nodiscard]] static MemoryOrigin origin_of(const void* address);
  [[nodiscard]] static bool is_open_to(int peer, const void* address);
  [[nodiscard]] static std::uint64_t identity_of(const void* address);

  // See `MemoryCalls`.
  [[nodiscard]] static std::unique_ptr<SharedPieces> share(int device, void* address, std::size_t bytes,
                                                           Audience audience);
  void adopt(int device, void* address, std::size_t bytes);
  void disown(int device, void* address) noexcept;
  /// Maps pieces of another process side by side, for work of `device`, and returns the address of the range
  /// that they offer. Throws Error(peer_unavailable).
  [[nodiscard]] void* open(int device, const SharedPieces::Opened& opened);
  /// Unmaps what was opened at this address. Returns false if that is nothing; `status` is then unchanged,
  /// and otherwise the driver's.
  [[nodiscard]] bool close(void* address, int& status) noexcept;

 private:
  using Extent = std::pair<std::byte*, std::size_t>;
  struct OfDevice {
    std::vector<int> accessors;                ///< other devices
    std::map<std::byte*, std::size_t> pieces;  ///< by address
    std::map<const void*, Extent> adopted;     ///< whole pieces, by the address that was adopted
    std::vector<void*> adopted_of_pools;
  };
  void adopt_of_pool(int device, void* address);
  [[nodiscard]] OfDevice& of(int device) { return devices_[static_cast<std::size_t>(device)]; }

  std::mutex mutex_;  ///< guards the next, and keeps pieces and access from changing at once
  std::vector<OfDevice> devices_;
  std::mutex opened_mutex_;
  std::map<const void*, Extent> opened_;  ///< of other processes, by the address that `open` returned
};

}  // namespace tutti::backend::cuda
