// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/rounds/round_choice.hpp"

namespace tutti::transport::team {

/// A team's problem by rounds, of the kind that suits it best; its reasons say why that one. Carries
/// everything, a barrier and nothing at all included. The same on all ranks but for which parts are here.
[[nodiscard]] Plan lower_rounds(const Problem& problem, const TeamCapabilities& capabilities);

}  // namespace tutti::transport::team
