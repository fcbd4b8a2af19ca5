// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/problem.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/rounds/round_plan.hpp"

namespace tutti::transport::team {

/// A team's problem as work in stages, shared among its members (`transport/plan/shares.hpp`).
///
/// Sums with an output on every member: small ones are made by every member for itself, in one round. Larger
/// ones are cut into stages of about one message, and these into a share for each member, who sums it and
/// gives it to the others. Relayed sums of a root: each member but the root makes a share, in memory of its
/// own, and hands it on. A relayed broadcast: the root sends each other member a share, who hands it on to
/// the rest, so that the root sends once what it would else send to all. Everything else is done as it
/// stands.
[[nodiscard]] TeamWork share_work(const Problem& problem, bool is_relayed, const RoundTuning& tuning);

}  // namespace tutti::transport::team
