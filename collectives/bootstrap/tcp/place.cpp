// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/place.hpp"

#include "collectives/bootstrap/tcp/handshake.hpp"

#include <fmt/format.h>

namespace tutti::tcp {

Place place_at(const MeetingPoint& point, std::chrono::milliseconds timeout, std::string_view function,
               std::string_view argument) {
  Place place;
  place.rendezvous = {.rank = Claim::newcomer,
                      .address = point.address,
                      .port = point.port,
                      .secret = point.secret,
                      .job = point.job,
                      .timeout = timeout,
                      .address_name = fmt::format("{}.address", argument),
                      .port_name = fmt::format("{}.port", argument)};
  place.addresses = checked_addresses_of(place.rendezvous, function, fmt::format("{}.secret", argument));
  return place;
}

}  // namespace tutti::tcp
