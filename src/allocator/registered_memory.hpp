// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "backend/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti {

/// Lists the device memory that the program has allocated itself and registered (`register_memory`). Other
/// processes may open the allocations around it as they open segments of the caching allocators. Thread-safe.
class RegisteredMemory {
 public:
  struct Allocation {
    std::byte* address = nullptr;
    std::size_t bytes = 0;
    int device = -1;
  };
  /// A range that the program has registered, in an allocation.
  struct Range {
    std::size_t bytes = 0;
    Allocation allocation;
  };

  explicit RegisteredMemory(backend::Backend& backend) : backend_(backend) {}
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  ~RegisteredMemory() = default;

  /// Adds a range, unless it overlaps one that is registered: returns the begin of that one then.
  [[nodiscard]] std::optional<const std::byte*> add(const std::byte* begin, const Range& range);
  enum class IfHeld : std::uint8_t { keep, drop };
  /// Removes the range that begins there. If it is the last one in its allocation, waits until nobody has
  /// that open. Returns false if somebody does not close it for a second; the range is kept then, or dropped
  /// nevertheless.
  [[nodiscard]] bool remove(const std::byte* begin, IfHeld if_held);
  /// Returns the allocation of the device around the address, if a range of it is registered; an empty extent
  /// otherwise.
  [[nodiscard]] CachingAllocator::Extent allocation_of(int device, const void* address);
  /// Returns the number of ranges.
  [[nodiscard]] std::size_t count();

  /// Adds an observer, which is asked before an allocation may be freed.
  void add_observer(SegmentObserver& observer);
  void remove_observer(SegmentObserver& observer) noexcept;

 private:
  struct Counted {
    Allocation allocation;
    std::size_t ranges = 0;  ///< that are not being removed; without any, the allocation is not found
  };

  /// Returns true once no observer holds the allocation, false if another process does for too long.
  [[nodiscard]] bool wait_for_observers(const std::byte* allocation);
  [[nodiscard]] SegmentObserver::Hold ask_observers(const std::byte* allocation, bool insists) noexcept;

  backend::Backend& backend_;
  std::mutex mutex_;  ///< guards the maps
  std::map<const std::byte*, Range> ranges_;
  std::map<const std::byte*, Counted> allocations_;
  std::mutex observers_mutex_;  ///< held while observers are asked, whose locks may be held for the other
  std::vector<SegmentObserver*> observers_;
};

}  // namespace tutti
