// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_turn.hpp"

#include "stream/thread_streams.hpp"
#include "transport/team/progress/abort.hpp"
#include "tutti/error.hpp"

#include <exception>
#include <new>

#include <fmt/format.h>

namespace tutti::collectives {

TeamTurn::TeamTurn(TeamContext& context, std::string_view name, StreamList streams)
    : context_(context.require_own_process()),
      team_(context.team()),
      lock_(context.team().calls().mutex()),
      name_(name),
      arguments_(context.runtime(), name),
      packing_(arguments_, PackingPolicy::copy, Participants{.devices = context.devices()}),
      streams_(context.scratch().streams) {
  context.scratch().begin();
  arguments_.streams(streams, context.devices(), "local member");
  for (std::size_t local = 0; local < streams.size(); ++local) guards_[local].emplace(streams[local]);
  for (const Device device : context.devices())
    streams_.push_back(current_stream_ref(context.runtime(), device.index()));
  BoundCallsScope::check(context, streams_, arguments_);
}

TeamTurn::~TeamTurn() {
  context_.launcher().abandon();
  context_.scratch().let_go();
}

void TeamTurn::give_up(const backend::Escaped& escaped) {
  // Memory may be what there is none of.
  std::array<char, sizeof(backend::AbortReason::bytes)> text{};
  std::string words;
  try {
    words = call_in_words();
  } catch (const std::bad_alloc&) {
    words.clear();
  }
  const auto end =
      fmt::format_to_n(text.data(), text.size(), "rank {} failed in {}: {}", team_.membership().rank(),
                       words.empty() ? name_ : std::string_view(words), escaped.what);
  team_.abort().set(escaped.code, {text.data(), end.out});
  try {
    context_.launcher().end(streams_);
  } catch (const std::exception&) {
    // A stream that takes nothing more has failed, and with it what it has taken.
  }
}

watching::WatchedCall TeamTurn::watched(PlanSummary plan) const {
  const transport::team::Membership& membership = team_.membership();
  return {.runtime = &runtime(),
          .plan = std::move(plan),
          .streams = streams_,
          .member = watching::WatchedMember{
              .team = context_.number(), .rank = membership.rank(), .rank_count = membership.rank_count()}};
}

}  // namespace tutti::collectives
