// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan_builder.hpp"
#include "transport/steps/lowering.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport {

/// Makes problems as the collectives describe them, one lane per device.
class ProblemMaker {
 public:
  ProblemMaker(int devices, LaneId root) {
    for (int device = 0; device < devices; ++device) problem_.lane_devices.push_back(device);
    problem_.root = root;
  }

  BufferId buffer(LaneId home) { return buffer(home, home); }
  BufferId buffer(LaneId home, LaneId ready) {
    problem_.homes.push_back(home);
    problem_.ready.push_back(ready);
    return static_cast<BufferId>(problem_.homes.size() - 1);
  }
  PlaceRange places(const std::vector<Place>& list) {
    const PlaceRange range{static_cast<std::uint32_t>(problem_.places.size()),
                           static_cast<std::uint32_t>(list.size())};
    problem_.places.insert(problem_.places.end(), list.begin(), list.end());
    return range;
  }
  /// Adds copies from one buffer on `home` to one on every device, or back.
  void scatter(LaneId home, std::uint64_t row_bytes, std::uint64_t rows, LaneId ready_of_chunks) {
    const LaneId parts = lane_count();
    const BufferId whole = buffer(home);
    for (LaneId lane = 0; lane < parts; ++lane) {
      const BufferId chunk = buffer(lane, ready_of_chunks == host_lane ? lane : ready_of_chunks);
      problem_.flows.push_back({.source = {whole, lane * row_bytes},
                                .targets = places({{chunk, 0}}),
                                .row_bytes = row_bytes,
                                .rows = rows,
                                .source_pitch = row_bytes * parts,
                                .target_pitch = row_bytes});
    }
  }
  void gather(LaneId home, std::uint64_t row_bytes, std::uint64_t rows) {
    const LaneId parts = lane_count();
    const BufferId whole = buffer(home);
    for (LaneId lane = 0; lane < parts; ++lane) {
      problem_.flows.push_back({.source = {buffer(lane), 0},
                                .targets = places({{whole, lane * row_bytes}}),
                                .row_bytes = row_bytes,
                                .rows = rows,
                                .source_pitch = row_bytes,
                                .target_pitch = row_bytes * parts});
    }
  }
  void broadcast(LaneId home, std::uint64_t bytes, LaneId ready_of_copies, bool has_copy_at_home) {
    const BufferId source = buffer(home);
    std::vector<Place> copies;
    for (LaneId lane = 0; lane < lane_count(); ++lane) {
      if (lane != home || has_copy_at_home)
        copies.push_back({buffer(lane, ready_of_copies == host_lane ? lane : ready_of_copies), 0});
    }
    problem_.flows.push_back({.source = {source, 0}, .targets = places(copies), .row_bytes = bytes});
  }
  void reduce(std::uint64_t count, bool in_place) {
    std::vector<Place> inputs;
    for (LaneId lane = 0; lane < lane_count(); ++lane) inputs.push_back({buffer(lane), 0});
    const Place output = in_place ? inputs[problem_.root] : Place{buffer(problem_.root), 0};
    problem_.reductions.push_back({.count = count, .inputs = places(inputs), .outputs = places({output})});
  }
  [[nodiscard]] Problem& problem() { return problem_; }

 private:
  [[nodiscard]] LaneId lane_count() const { return static_cast<LaneId>(problem_.lane_devices.size()); }

  Problem problem_;
};

inline Plan lower(const Problem& problem, const Reach& reach) {
  PlanBuilder builder(problem);
  std::string algorithm =
      problem.reductions.empty() ? lower_flows(builder, reach) : lower_reductions(builder, reach);
  return builder.finish("test", std::move(algorithm));
}

inline bool reaches_all(int, int) {
  return true;
}

}  // namespace tutti::transport
