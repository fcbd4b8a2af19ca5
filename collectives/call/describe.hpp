// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/request.hpp"
#include "transport/plan/message_route.hpp"
#include "transport/plan/problem.hpp"

#include <span>

namespace tutti::collectives {

/// Completes a problem whose collective, lanes, homes and root are set: places, flows, reductions, shape.
///
/// A call of one process has a row of operands for each that takes part: the source of a broadcast or
/// scatter first, the result of a sum or gather last. A team has a row of inputs for each member, then a row
/// of outputs for each.
void describe(const Request& request, transport::Problem& problem);
/// Completes a problem of messages among all members of a team, which are an exchange: message i goes from
/// buffer 2i to buffer 2i + 1. Sets the homes of these, too.
void describe(std::span<const transport::InsideMessage> messages, transport::Problem& problem);

}  // namespace tutti::collectives
