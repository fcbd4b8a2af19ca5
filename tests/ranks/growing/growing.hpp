// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "tutti/communicator.hpp"

#include <chrono>

/// Ranks that let new ones in, and processes that become such.
namespace tutti::test::ranks {

/// Returns a meeting point where nobody listens yet. Call it before there are ranks.
inline MeetingPoint some_meeting_point() {
  return {.port = Listener().port(), .secret = "0123456789abcdef", .job = "a test"};
}

/// Joins the ranks that let processes in at the point, with one device.
inline Communicator join(const MeetingPoint& point,
                         std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  return Communicator::join({.meeting_point = point, .timeout = limit},
                            {.devices = {Device(0)}, .timeout = std::chrono::seconds(60)});
}

}  // namespace tutti::test::ranks
