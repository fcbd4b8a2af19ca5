// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/rounds/plan_rounds.hpp"
#include "transport/rounds/round_plan.hpp"

#include <cstdint>
#include <vector>

/// Describes work of a team's members, all of one process, to be planned as rounds.
namespace tutti::transport::team::round_work {

inline constexpr std::uint64_t bytes = 1024;
inline constexpr RoundLimits limits{
    .message_bytes = 1 << 20,
    .protocol = Protocol::low_latency,
    .layout = {.members = 4, .slot_bytes = 1 << 20, .inbox_bytes = 8 * bytes}};

/// Holds members with one input and one output each: buffers m and members + m.
class Work {
 public:
  explicit Work(LaneId members) : members_(members) {
    for (int side = 0; side < 2; ++side) {
      for (LaneId member = 0; member < members; ++member) work.homes.push_back(member);
    }
    work.stages.emplace_back();
  }
  [[nodiscard]] Place output(LaneId member, std::uint64_t offset = 0) const {
    return {static_cast<BufferId>(members_ + member), offset};
  }
  void flow(Place source, std::vector<Place> targets, std::uint64_t row_bytes, std::uint64_t rows = 1) {
    work.stages.back().flows.push_back({.source = source,
                                        .targets = range(targets),
                                        .row_bytes = row_bytes,
                                        .rows = rows,
                                        .source_pitch = 2 * row_bytes,
                                        .target_pitch = row_bytes});
  }
  /// Adds a sum of all members' inputs from `begin` on.
  void sum(std::uint64_t begin, std::uint64_t count, Place output) {
    std::vector<Place> inputs;
    for (LaneId member = 0; member < members_; ++member) inputs.push_back({member, begin});
    work.stages.back().reductions.push_back(
        {.dtype = DType::uint8, .count = count, .inputs = range(inputs), .outputs = range({output})});
  }
  /// Makes every member add `count` elements, its own share of all inputs, for all outputs.
  void sums_for_all(std::uint64_t count) {
    for (LaneId member = 0; member < members_; ++member) {
      std::vector<Place> outputs{output(member, member * count)};
      for (LaneId other = 0; other < members_; ++other) {
        if (other != member) outputs.push_back(output(other, member * count));
      }
      sum(member * count, count, outputs.front());
      work.stages.back().reductions.back().outputs = range(outputs);
    }
  }
  /// Adds a sum of one input.
  void sum_of_one(Place input, std::uint64_t count, Place output) {
    work.stages.back().reductions.push_back(
        {.dtype = DType::uint8, .count = count, .inputs = range({input}), .outputs = range({output})});
  }
  [[nodiscard]] RoundPlan plan(const RoundLimits& by = limits) const {
    return plan_rounds(work, members_, 0, members_, by);
  }

  TeamWork work;

 private:
  PlaceRange range(const std::vector<Place>& places) {
    const PlaceRange range{static_cast<std::uint32_t>(work.places.size()),
                           static_cast<std::uint32_t>(places.size())};
    work.places.insert(work.places.end(), places.begin(), places.end());
    return range;
  }

  LaneId members_;
};

}  // namespace tutti::transport::team::round_work
