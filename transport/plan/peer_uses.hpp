// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <vector>

namespace tutti::transport {

/// Returns the operands that the steps of a problem's plan let other devices use, in ascending order. Copies
/// between two devices count as work of both. So does what a library does, which may read and write memory of
/// all devices of the process.
///
/// Rounds are not looked at: what they let others use is in `team::RoundPlan::exposed`.
[[nodiscard]] std::vector<PeerUse> find_peer_uses(const Problem& problem, const Plan& plan);

}  // namespace tutti::transport
