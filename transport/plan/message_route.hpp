// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport {

/// How the largest of the messages from and to other processes travels, or, if a batch has none, how those
/// inside this process do, unless they are a round.
enum class MessageRoute : std::uint8_t { by_copies, by_nccl, direct, in_lines, through_slots };
inline constexpr std::size_t message_route_count = 5;

/// A message between two members of this process, by their numbers among these; they may be one. It is not
/// empty.
struct InsideMessage {
  std::size_t sender = 0;
  std::size_t receiver = 0;
  std::byte* source = nullptr;  ///< only read
  std::byte* target = nullptr;
  std::uint64_t bytes = 0;
};

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
  /// Every member of the team has a part in one of those inside that is another member's as well: so all
  /// members are this process's.
  bool is_among_all = false;
};

}  // namespace tutti::transport
