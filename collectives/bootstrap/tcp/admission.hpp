// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/place.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "transport/team/shrinking/entrance.hpp"

namespace tutti::tcp {

/// The way of a process into a communicator. The line tells the rank that has let it in that it is there.
struct Admission {
  Line line;
  transport::team::Ticket ticket;
};

/// Goes to the place, and waits until a rank there lets this process in. Throws Error(timeout) when the wait
/// is over, which says whether ranks know that it waits, and the errors of `Exchange` for a listener that has
/// another secret or is no rank. `losses`: how often ranks have let it in already, and gone on without it.
[[nodiscard]] Admission await_admission(const Place& place, const Wait& wait, int losses);

}  // namespace tutti::tcp
