// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::transport {

/// How the largest of the messages from and to other processes travels, if a batch has any.
enum class MessageRoute : std::uint8_t { inside_process, by_nccl, direct, in_lines, through_slots };
inline constexpr std::size_t message_route_count = 5;

/// The messages of a batch that leave this process or come from another, as far as their way depends on them.
struct MessageShape {
  std::size_t count = 0;
  std::uint64_t largest = 0;  ///< bytes
};

}  // namespace tutti::transport
