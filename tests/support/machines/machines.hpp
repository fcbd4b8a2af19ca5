// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/virtual_devices.hpp"

#include <cstddef>
#include <string_view>

/// Virtual machines and their faults.
namespace tutti::test {

inline constexpr std::uint64_t forever = ~std::uint64_t{0};

/// Boots `device_count` virtual devices; all tensors must be gone.
void boot(std::string_view topology = "island", int device_count = 4,
          std::size_t memory_bytes = std::size_t{1} << 28);

/// Bytes in use by tensors and by the library, on all devices and pinned. Waits for the devices first, so
/// that freed memory has returned.
struct MemoryInUse {
  std::size_t device = 0;
  std::size_t pinned = 0;
  friend bool operator==(const MemoryInUse&, const MemoryInUse&) = default;
};
[[nodiscard]] MemoryInUse memory_in_use();
std::ostream& operator<<(std::ostream& stream, const MemoryInUse& memory);

/// Gives all cached memory back, so that the next allocation of any size asks the device.
void drop_caches();

/// Injects a fault for the scope's lifetime.
class InjectedFault {
 public:
  explicit InjectedFault(const virtual_devices::Fault& fault) { virtual_devices::inject(fault); }
  InjectedFault(const InjectedFault&) = delete;
  InjectedFault& operator=(const InjectedFault&) = delete;
  ~InjectedFault() { virtual_devices::clear_faults(); }
};

}  // namespace tutti::test
