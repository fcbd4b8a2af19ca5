// SPDX-License-Identifier: Apache-2.0
#include "tutti/open_meeting_point.hpp"

#include "collectives/bootstrap/tcp/open_place.hpp"
#include "tutti/error.hpp"

#include <chrono>
#include <cstddef>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr int most_that_may_wait = 256;

std::shared_ptr<tcp::OpenPlace> opened(const MeetingPoint& point, int most_waiting) {
  if (most_waiting < 1 || most_waiting > most_that_may_wait) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("OpenMeetingPoint: most_waiting is {}, expected 1 to {}", most_waiting,
                            most_that_may_wait));
  }
  const tcp::Place place =
      tcp::place_at(point, std::chrono::milliseconds::max(), "OpenMeetingPoint", "point");
  return tcp::OpenPlace::at(place, static_cast<std::size_t>(most_waiting));
}

}  // namespace

OpenMeetingPoint::OpenMeetingPoint(const MeetingPoint& point, int most_waiting)
    : place_(opened(point, most_waiting)) {}

OpenMeetingPoint::OpenMeetingPoint(OpenMeetingPoint&& other) noexcept = default;
OpenMeetingPoint& OpenMeetingPoint::operator=(OpenMeetingPoint&& other) noexcept = default;
OpenMeetingPoint::~OpenMeetingPoint() = default;

int OpenMeetingPoint::waiting_count() const noexcept {
  return place_ == nullptr ? 0 : static_cast<int>(place_->waiting_count());
}

}  // namespace tutti
