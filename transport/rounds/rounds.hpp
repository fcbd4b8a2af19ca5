// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/rounds/round_choice.hpp"

namespace tutti::transport::team {

/// Plans a team's problem by the rounds that suit it best; the plan's reasons say why. Carries everything,
/// including a barrier and empty problems. The same on all ranks except for which parts are local.
[[nodiscard]] Plan lower_rounds(const Problem& problem, const TeamCapabilities& capabilities);

}  // namespace tutti::transport::team
