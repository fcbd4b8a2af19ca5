// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/sockets.hpp"
#include "transport/team/shrinking/entrance.hpp"
#include "tutti/grow_options.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <memory>
#include <string_view>
#include <vector>

namespace tutti::tcp {

/// A meeting point, as connections are made there.
struct Place {
  Rendezvous rendezvous;
  std::vector<Address> addresses;
};
/// Throws Error(invalid_argument), on behalf of `function`, for an invalid point.
[[nodiscard]] Place place_at(const MeetingPoint& point, std::chrono::milliseconds timeout,
                             std::string_view function);

/// Listens at the place. Throws Error(transport_failure) with errno if that is impossible.
[[nodiscard]] std::unique_ptr<transport::team::Entrance> open_entrance(const Place& place);

}  // namespace tutti::tcp
