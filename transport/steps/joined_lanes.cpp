// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/joined_lanes.hpp"

#include "stream/streams.hpp"

#include <exception>

namespace tutti::transport {

JoinedLanes::JoinedLanes(Runtime& runtime, backend::StreamRef origin,
                         std::span<const backend::StreamRef> lanes)
    : runtime_(runtime), origin_(origin) {
  others_.reserve(lanes.size());
  for (const backend::StreamRef lane : lanes) {
    if (lane == origin) continue;
    runtime.part<Streams>().order(origin, lane);
    others_.push_back(lane);
  }
}

JoinedLanes::~JoinedLanes() {
  try {
    bring_back();
  } catch (const std::exception&) {
    // Then the capture is invalid, which its end will say.
  }
}

void JoinedLanes::bring_back() {
  while (!others_.empty()) {
    const backend::StreamRef lane = others_.back();
    others_.pop_back();
    runtime_.part<Streams>().order(lane, origin_);
  }
}

}  // namespace tutti::transport
