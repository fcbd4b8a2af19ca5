// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/shares.hpp"

#include "transport/plan/tuning.hpp"

#include <utility>

namespace tutti::transport {

std::vector<Share> share_out(std::span<const std::uint64_t> sizes, std::span<const LaneId> lanes) {
  auto parts = split_evenly(sizes, lanes.size(), split_alignment);
  std::vector<Share> shares;
  shares.reserve(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) shares.push_back({lanes[i], std::move(parts[i])});
  return shares;
}

std::vector<LaneId> lanes_but(LaneId root, std::size_t count) {
  std::vector<LaneId> lanes;
  for (std::size_t lane = 0; lane < count; ++lane) {
    if (lane != root) lanes.push_back(static_cast<LaneId>(lane));
  }
  return lanes;
}

}  // namespace tutti::transport
