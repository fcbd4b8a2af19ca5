// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport {

/// How the largest of the messages from and to other processes travels, or, if a batch has none, how those
/// inside this process do.
enum class MessageRoute : std::uint8_t { by_copies, by_kernels, by_nccl, direct, in_lines, through_slots };
inline constexpr std::size_t message_route_count = 6;

/// The messages of a batch, as far as their way depends on them.
struct MessageShape {
  /// Some that go the same way.
  struct Some {
    std::size_t count = 0;
    std::uint64_t largest = 0;  ///< bytes

    void add(std::uint64_t bytes) noexcept {
      ++count;
      largest = largest < bytes ? bytes : largest;
    }
  };
  Some far;     ///< from this process to others, and from others
  Some inside;  ///< between its own members, but for empty ones
  std::size_t senders_inside = 0;
  /// Some of those inside are memory that the library has not allocated: other devices' kernels may not reach
  /// it, while copy engines move whatever the driver knows.
  bool has_foreign_memory = false;
};

}  // namespace tutti::transport
