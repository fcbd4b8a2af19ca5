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

/// A message, by its place on its link.
struct LinkPlace {
  std::size_t from = 0;      ///< the member that sends
  std::size_t to = 0;        ///< the member that receives
  std::uint64_t number = 0;  ///< from 1
};

/// "message #3 from member 0 to member 1".
[[nodiscard]] std::string in_words(const LinkPlace& message);

/// "4000 float32", with ", captured" behind it if it is.
[[nodiscard]] std::string in_words(const LinkSignature& side);

/// Ends the team if both sides of the message have been posted and differ; the reason names that at `end`
/// first. Each side has written its own before it is compared here: so whichever comes second, or comes here
/// second from another host, sees both. Thread-safe.
void compare_sides(const Membership& membership, const SharedState& state, Abort& abort,
                   const LinkPlace& message, SharedState::LinkEnd end) noexcept;

}  // namespace tutti::transport::team
