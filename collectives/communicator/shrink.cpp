// SPDX-License-Identifier: Apache-2.0
#include "base/patience.hpp"
#include "collectives/call/arguments.hpp"
#include "collectives/communicator/communicator_impl.hpp"
#include "device/blocking_call.hpp"
#include "stream/thread_streams.hpp"
#include "transport/team/departure.hpp"
#include "transport/team/shrinking/survivor_agreement.hpp"
#include "tutti/communicator.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// A communicator of the ranks that survive another one.
namespace tutti {
namespace {

using collectives::Arguments;
using collectives::TeamContext;
using transport::team::ShrinkWish;
using transport::team::SurvivorAgreement;

std::vector<std::size_t> checked_leaving(const Arguments& arguments, const std::vector<int>& leaving,
                                         int rank_count) {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < leaving.size(); ++i) {
    if (leaving[i] < 0 || leaving[i] >= rank_count)
      arguments.fail("options.leaving[{}] is {}, expected a rank, 0 to {}", i, leaving[i], rank_count - 1);
    ranks.push_back(static_cast<std::size_t>(leaving[i]));
  }
  std::ranges::sort(ranks);
  if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
    arguments.fail("options.leaving has rank {} twice, expected it once", *twice);
  if (ranks.size() == static_cast<std::size_t>(rank_count))
    arguments.fail("options.leaving has all {} ranks, expected some to go on", rank_count);
  return ranks;
}

ShrinkWish checked(TeamContext& context, const ShrinkOptions& options) {
  const Arguments arguments(context.runtime(), "Communicator::shrink");
  const transport::team::Membership& membership = context.team().membership();
  ShrinkWish wish{
      .leaving = checked_leaving(arguments, options.leaving, static_cast<int>(membership.rank_count())),
      .leaves_out_late = options.late == LateRanks::leave_out,
      .timeout = std::min(options.timeout.value_or(context.team().settings().timeout), longest_limit)};
  arguments.enumerator(options.late, LateRanks::leave_out, "options.late");
  if (wish.timeout.count() <= 0)
    arguments.fail("options.timeout is {} ms, expected more than 0", wish.timeout.count());
  for (const int device : membership.devices()) {
    if (context.runtime().backend().is_capturing(current_stream_ref(context.runtime(), device)))
      arguments.unsupported("the current stream is being captured");
  }
  if (membership.spans_hosts()) {
    arguments.unsupported("the ranks are on {} hosts, and only ranks of one host agree on who is left",
                          membership.hosts().size());
  }
  return wish;
}

transport::team::ShrinkingTeam shrinking(transport::team::Team& team) {
  return {.is_lost =
              [&team](std::size_t rank, bool may_judge) {
                const transport::team::FailureDetector& detector = team.failure_detector();
                return detector.is_gone(rank) ||
                       team.state().status(rank).state.load() >= transport::team::RankStatus::leaving ||
                       (may_judge && detector.gives_no_sign(rank));
              },
          .end = [&team](const std::string& reason) { team.abort().set(ErrorCode::aborted, reason); },
          .wait_elsewhere = [&team] { team.runtime().backend().wait_elsewhere(); },
          .timeout = team.settings().timeout};
}

}  // namespace

Communicator Communicator::shrink(const ShrinkOptions& options) {
  const BlockingCall blocks("Communicator::shrink");
  TeamContext& context = impl().context->require_own_process();
  transport::team::Team& team = context.team();
  const ShrinkWish wish = checked(context, options);
  transport::team::free_deferred(context.runtime(), team.membership().devices());
  const std::lock_guard lock(team.calls().mutex());
  impl_->settle_calls(wish.timeout);
  if (std::ranges::binary_search(wish.leaving, team.membership().rank())) return {};

  std::unique_ptr<Impl> made;
  const CommunicatorOptions kept = impl_->options();
  SurvivorAgreement agreement(team.state().survivors(), team.membership().rank(), shrinking(team), wish);
  agreement.run([&](Exchange& exchange) { made = std::make_unique<Impl>(exchange, kept, true); },
                [&] {
                  if (made == nullptr) return;
                  made->context->team().abort().set(ErrorCode::aborted, "another survivor was lost");
                  made.reset();
                });
  // What waits there no longer waits, and takes no room.
  team.live_teams().stop_counting(team.calls());
  return Communicator(std::move(made));
}

}  // namespace tutti
