// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_links.hpp"

#include <cstddef>
#include <cstdint>

/// Gives the kernel for messages between members access to its arguments and to the data of one lane.
namespace tutti::backend::cuda {

/// The arguments besides the table.
struct LinkArguments {
  TeamWindowLayout layout;
  TeamCounters* counters;
  std::uint32_t* abort;
  std::uint32_t member;
  std::uint32_t lanes;               ///< with work, but for those of lines
  std::uint32_t lane_blocks;         ///< the first ones; further blocks have the lanes of lines
  std::uint32_t lanes_at_once;       ///< by a block
  std::uint32_t line_lanes;          ///< with work, of lines
  std::uint32_t line_warps;          ///< of a block that has some
  std::uint32_t line_lanes_at_once;  ///< by a warp
  std::uint32_t part_count;
  std::uint32_t parts_offset;
  std::uint32_t messages_offset;
  std::uint64_t direct_from;
};

/// One lane in this kernel's run.
struct LinkView {
  const LinkArguments& task;
  const std::byte* table;
  std::uint32_t lane;

  [[nodiscard]] __device__ std::byte* window(std::uint32_t member) const {
    return reinterpret_cast<std::byte* const*>(table)[member];
  }
  [[nodiscard]] __device__ const LinkPart& part(std::uint32_t index) const {
    return reinterpret_cast<const LinkPart*>(table + task.parts_offset)[index];
  }
  [[nodiscard]] __device__ const LinkMessage& message(const LinkPart& part, std::uint32_t index) const {
    return reinterpret_cast<const LinkMessage*>(table + task.messages_offset)[part.first_message + index];
  }
  [[nodiscard]] __device__ std::uint32_t& count(const LinkPart& part) const {
    auto* const counts = reinterpret_cast<std::uint32_t*>(task.counters + 1);
    const std::uint32_t direction = part.is_sent != 0 ? 0 : 1;
    return counts[(direction * task.layout.members + part.peer) * task.layout.all_link_lanes() + lane];
  }
  /// Returns the flag in which the receiver publishes how many pieces of the lane it has taken.
  [[nodiscard]] __device__ std::byte* taken_flag(std::uint32_t sender, std::uint32_t receiver) const {
    return window(sender) + task.layout.link_taken_offset(receiver, lane);
  }
};

}  // namespace tutti::backend::cuda
