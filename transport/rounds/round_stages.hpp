// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/problem.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/rounds/round_plan.hpp"

namespace tutti::transport::team {

/// Returns a team's problem as work in stages, shared among its members (`transport/plan/shares.hpp`).
///
/// Small sums with an output on every member are made by every member for itself, in one round. Larger ones
/// are cut into stages of about one message, and these into a share for each member, which sums it and sends
/// it to the others. Relayed sums of a root: each member but the root makes a share, in memory of its own,
/// and passes it on. A relayed broadcast: the root sends each other member a share, which that member passes
/// on to the rest, so that the root sends once what it would otherwise send to all. Everything else stays as
/// it is.
[[nodiscard]] TeamWork share_work(const Problem& problem, bool is_relayed, const RoundTuning& tuning);

}  // namespace tutti::transport::team
