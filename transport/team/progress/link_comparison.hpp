// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/progress/abort.hpp"
#include "transport/team/shared/link_log.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace tutti::transport::team {

/// Identifies a message by its place on its link.
struct LinkPlace {
  std::size_t from = 0;      ///< the member that sends
  std::size_t to = 0;        ///< the member that receives
  std::uint64_t number = 0;  ///< from 1
};

/// Returns "message #3 from member 0 to member 1", for instance.
[[nodiscard]] std::string in_words(const LinkPlace& message);

/// Returns "4000 float32", for instance, with ", captured" appended if it is.
[[nodiscard]] std::string in_words(const LinkSignature& side);

/// Ends the team if both sides of the message have been posted and differ; the reason names the side at `end`
/// first. Each side writes its own entry before comparing, so that the later one, also one that arrives later
/// from another host, sees both. Thread-safe.
void compare_sides(const Membership& membership, const SharedState& state, Abort& abort,
                   const LinkPlace& message, SharedState::LinkEnd end) noexcept;

}  // namespace tutti::transport::team
