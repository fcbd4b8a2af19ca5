// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "support/environment.hpp"
#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"
#include "tutti/open_meeting_point.hpp"

#include <chrono>
#include <optional>

/// Ranks that let new ones in, and processes that become such.
namespace tutti::test::ranks {

/// Limit for ranks that do not come, in tests that wait for it.
inline const std::chrono::milliseconds short_timeout = patient(std::chrono::milliseconds(300));

/// Returns a meeting point where nobody listens yet. Call it before there are ranks.
inline MeetingPoint some_meeting_point() {
  return {.port = Listener().port(), .secret = "0123456789abcdef", .job = "a test"};
}

/// Joins the ranks that let processes in at the point, with one device.
inline Communicator join(const MeetingPoint& point, std::chrono::milliseconds limit = hang_limit()) {
  return Communicator::join({.meeting_point = point, .timeout = limit},
                            {.devices = {Device(0)}, .timeout = hang_limit()});
}

/// Returns what a process does that becomes this rank of so many, and works there.
inline auto joins_as(const MeetingPoint& point, int rank, int count) {
  return [=](Exchange&) {
    Communicator communicator = join(point);
    expect_works(communicator, rank, count);
  };
}

/// Holds the point open on one of the ranks.
inline std::optional<OpenMeetingPoint> held_by(int holder, const Exchange& exchange,
                                               const MeetingPoint& point) {
  if (exchange.rank() != holder) return std::nullopt;
  return OpenMeetingPoint(point);
}

}  // namespace tutti::test::ranks
