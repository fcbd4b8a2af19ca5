// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport {

/// The route of the largest message from or to other processes; in a batch without such messages, of those
/// inside this process, unless they are a round.
enum class MessageRoute : std::uint8_t { by_copies, by_nccl, direct, in_lines, through_slots };
inline constexpr std::size_t message_route_count = 5;

/// A non-empty message between two members of this process, which may be one; members are numbered within the
/// process.
struct InsideMessage {
  std::size_t sender = 0;
  std::size_t receiver = 0;
  std::byte* source = nullptr;  ///< read only
  std::byte* target = nullptr;
  std::uint64_t bytes = 0;
};

/// The properties of a batch of messages that its route depends on.
struct MessageShape {
  /// Messages that take the same route.
  struct Some {
    std::size_t count = 0;
    std::uint64_t largest = 0;  ///< bytes

    void add(std::uint64_t bytes) noexcept {
      ++count;
      largest = largest < bytes ? bytes : largest;
    }
  };
  Some far;     ///< from this process to others, and from others
  Some inside;  ///< between its own members; empty ones do not count
  /// True if every member of the team sends an inside message to another member or receives one; so all
  /// members are this process's.
  bool is_among_all = false;
};

}  // namespace tutti::transport
