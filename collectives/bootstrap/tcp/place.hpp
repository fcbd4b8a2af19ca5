// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/sockets.hpp"
#include "tutti/grow_options.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <string_view>
#include <vector>

namespace tutti::tcp {

/// A meeting point, with the addresses that its name stands for.
struct Place {
  Rendezvous rendezvous;
  std::vector<Address> addresses;
};
/// Throws Error(invalid_argument), on behalf of `function`, which calls the point `argument`, for an invalid
/// point or timeout.
[[nodiscard]] Place place_at(const MeetingPoint& point, std::chrono::milliseconds timeout,
                             std::string_view function, std::string_view argument = "options.meeting_point");

}  // namespace tutti::tcp
