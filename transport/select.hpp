// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.hpp"
#include "transport/plan.hpp"
#include "transport/problem.hpp"

#include <string>

namespace tutti::transport {

/// Chooses a transport for `problem` and has it make the plan. The plan's `reasons` say why this one and not
/// the others.
///
/// The order of choice is a table; the first transport that is viable and whose turn it is wins. A transport
/// the caller or `TUTTI_TRANSPORT` names is binding: throws Error(unsupported), with the reason, if it cannot
/// carry the problem. Runs the P2P self-test for pairs not tested yet.
[[nodiscard]] Plan select(Runtime& runtime, const Problem& problem);

/// The plan in words: summary, reasons and steps, several lines.
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace tutti::transport
