// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace tutti::virtual_devices {

/// Makes memory of the program managed memory as long as it exists, such as `cudaMallocManaged` gives on
/// GPUs: every device may use it as its own, and the host still reads and writes it. A tensor of any device
/// can view it (`TensorView`). Other processes cannot open it; communicators copy it where one would have to.
///
/// Queued work that uses the memory must be over before this is destroyed, and this destroyed before the
/// memory is freed. Several ranges may be of exactly the same memory, but overlap in no other way. Calls see
/// whether operands of one device overlap, but not those of several. Thread-safe. Costs a search among the
/// blocks of memory that there are.
class ManagedRange {
 public:
  /// Throws Error(invalid_argument) for no address or no bytes, and for memory that overlaps with memory of
  /// the devices, or with another range in part; Error(unsupported) on GPUs.
  TUTTI_EXPORT ManagedRange(void* address, std::size_t bytes);
  ManagedRange(ManagedRange&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), machine_(other.machine_) {}
  ManagedRange(const ManagedRange&) = delete;
  ManagedRange& operator=(const ManagedRange&) = delete;
  TUTTI_EXPORT ~ManagedRange();

 private:
  const std::byte* address_ = nullptr;
  std::uint64_t machine_ = 0;  ///< the number of the machine, which `start` may have replaced
};

}  // namespace tutti::virtual_devices
