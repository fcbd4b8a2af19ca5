// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "backend/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

/// Memory that a device has allocated as one, as a block or from a pool, or bytes within pieces that lie side
/// by side.
struct DeviceAllocation {
  std::byte* address = nullptr;
  std::size_t bytes = 0;
  int device = -1;
  backend::MemoryOrigin origin = backend::MemoryOrigin::block;

  [[nodiscard]] bool is_pieces() const noexcept { return origin == backend::MemoryOrigin::piece; }
  friend bool operator==(const DeviceAllocation&, const DeviceAllocation&) = default;
};
/// Returns the allocation that contains the address, as the driver knows it; of memory by pieces, as many of
/// the `bytes` from the address on as pieces of one device have. Nothing if the address is not in an
/// allocation of a device.
[[nodiscard]] std::optional<DeviceAllocation> allocation_around(backend::Backend& backend, void* address,
                                                                std::size_t bytes);

/// Returns why other processes cannot open the device memory at the address, whoever has allocated it; empty
/// if they may be able to.
[[nodiscard]] std::string reason_not_to_share(backend::Backend& backend, const void* address);

/// Lists the device memory that the program has allocated itself and registered (`register_memory`). Other
/// processes may open the allocations around it as they open segments of the caching allocators. Thread-safe.
class RegisteredMemory {
 public:
  explicit RegisteredMemory(backend::Backend& backend) : backend_(backend) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() = default;

  /// Adds a range of an allocation, unless it overlaps one that is registered: returns the begin of that one
  /// then.
  [[nodiscard]] std::optional<const std::byte*> add(const std::byte* begin, std::size_t bytes,
                                                    const DeviceAllocation& allocation);
  enum class IfHeld : std::uint8_t { keep, drop };
  /// Removes the range that begins there. If it is the last one in its allocation, waits until nobody has
  /// that open, or, of memory by pieces, until no work of this process uses it. Returns false if somebody
  /// does not close it for a second; the range is kept then, or dropped nevertheless.
  [[nodiscard]] bool remove(const std::byte* begin, IfHeld if_held);
  /// Returns the allocation of the device around the address, if a range of it is registered, and of memory
  /// by pieces that range; an empty extent otherwise.
  [[nodiscard]] CachingAllocator::Extent allocation_of(int device, const void* address);
  /// Returns the number of ranges.
  [[nodiscard]] std::size_t count();

  /// Adds an observer, which is asked before an allocation may be freed.
  void add_observer(SegmentObserver& observer);
  void remove_observer(SegmentObserver& observer) noexcept;

 private:
  struct Counted {
    DeviceAllocation allocation;
    std::size_t ranges = 0;
    std::size_t ending = 0;  ///< of these; if all are, the allocation is not found
  };
  using Allocations = std::map<const std::byte*, Counted>;
  struct Range {
    std::size_t bytes = 0;
    Allocations::iterator allocation;
  };

  /// Returns true once no observer holds the allocation, false if another process does for too long.
  [[nodiscard]] bool wait_for_observers(const std::byte* allocation);
  [[nodiscard]] SegmentObserver::Hold ask_observers(const std::byte* allocation, bool insists) noexcept;

  backend::Backend& backend_;
  std::mutex mutex_;  ///< guards the maps
  Allocations allocations_;
  std::map<const std::byte*, Range> ranges_;  ///< those that are ending too
  std::mutex observers_mutex_;  ///< held while observers are asked, whose locks may be held for the other
  std::vector<SegmentObserver*> observers_;
};

}  // namespace tutti
