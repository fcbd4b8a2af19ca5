// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/place.hpp"
#include "transport/team/shrinking/entrance.hpp"

#include <memory>

namespace tutti::tcp {

/// Lets processes in that come to the place: those that wait there already if this process holds it open,
/// else it listens there. Throws Error(transport_failure) with errno if that is impossible, and
/// Error(invalid_argument) if this process holds the place open with another secret or job.
[[nodiscard]] std::unique_ptr<transport::team::Entrance> open_entrance(const Place& place);

/// Returns whether this process holds the place open.
[[nodiscard]] bool is_held_open(const Place& place);

}  // namespace tutti::tcp
