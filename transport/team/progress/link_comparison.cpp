// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/link_comparison.hpp"

#include "os/thread.hpp"
#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

using LinkEnd = SharedState::LinkEnd;

}  // namespace

std::string in_words(const LinkSignature& side) {
  return fmt::format("{} {}{}", side.elements, tutti::name_of(side.dtype),
                     side.is_captured ? ", captured" : "");
}

std::string in_words(const LinkPlace& message) {
  return fmt::format("message #{} from member {} to member {}", message.number, message.from, message.to);
}

void compare_sides(const Membership& membership, const SharedState& state, Abort& abort,
                   const LinkPlace& message, LinkEnd end) noexcept {
  const auto log_at = [&](LinkEnd which) -> const LinkLog& {
    return state.link_log(message.from, message.to, which);
  };
  for (const LinkEnd which : {LinkEnd::sender, LinkEnd::receiver}) {
    if (log_at(which).posted() < message.number) return;
  }
  const LinkEnd other_end = end == LinkEnd::sender ? LinkEnd::receiver : LinkEnd::sender;
  const LinkSignature first = log_at(end).message(message.number);
  const LinkSignature second = log_at(other_end).message(message.number);
  if (first == second) return;
  try {
    const auto does = [&](LinkEnd which, const LinkSignature& side) {
      const bool sends = which == LinkEnd::sender;
      return fmt::format("rank {} {} {}", membership.rank_of_member()[sends ? message.from : message.to],
                         sends ? "sends" : "receives", in_words(side));
    };
    abort.set(ErrorCode::invalid_argument, fmt::format("{} does not match: {}, {}", in_words(message),
                                                       does(end, first), does(other_end, second)));
  } catch (...) {
    abort.fail("made a message that does not match, or another rank did; the messages cannot be printed",
               backend::Escaped::current());
  }
}

}  // namespace tutti::transport::team
