// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/message_route.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/rounds/round_choice.hpp"

#include <string>

namespace tutti::transport {

/// Chooses a transport for `problem` and returns its plan. The plan's `reasons` say why this one and not the
/// others.
///
/// The order of choice is a table (`candidates.hpp`): rounds among the process's own devices, NCCL, then
/// steps by p2p, then staged; the first that is viable and preferred wins. A transport that the caller or
/// `TUTTI_TRANSPORT` names is binding: throws Error(unsupported), with the reason, if it cannot carry the
/// problem. Runs the P2P self-test for pairs not tested yet.
[[nodiscard]] Plan select(Runtime& runtime, const Problem& problem);

/// Chooses for a team's problem, by the team's capabilities: NCCL, then rounds.
[[nodiscard]] Plan select(const Problem& problem, const team::TeamCapabilities& team);

/// Throws Error(unsupported) if `select` could not plan the team's problem whatever its flows and reductions
/// are; these may not be known yet.
void require_possible(const Problem& problem, const team::TeamCapabilities& team);

/// Chooses the route of messages: NCCL where it is `wished` for, else direct, in lines, or through slots, the
/// first that can carry the largest. Batches with messages inside a process only, which are no round, go by
/// copies.
[[nodiscard]] MessageRoute select(const MessageShape& messages, const team::TeamCapabilities& team,
                                  TransportKind wished) noexcept;
/// Returns true if a batch may be a round of the team, provided that this turns out better than copies, and
/// that members can expose its memory (`RoundLauncher::may_expose`). If it `avoids_copies`, whatever is
/// better.
[[nodiscard]] bool may_be_a_round(const MessageShape& messages, const team::TeamCapabilities& team,
                                  bool avoids_copies) noexcept;
/// Returns the plan of such a batch, which is the problem's flows.
[[nodiscard]] Plan plan_in_a_round(const Problem& problem, const team::TeamCapabilities& team);
[[nodiscard]] bool are_better_than_copies(const team::RoundPlan& rounds) noexcept;
/// Returns a plan without steps that describes messages of this route.
[[nodiscard]] Plan plan_of(MessageRoute route, const team::TeamCapabilities& team);

/// Describes the plan: summary, reasons and steps, on several lines.
[[nodiscard]] std::string to_text(const Plan& plan);

}  // namespace tutti::transport
