#pragma once

#include "transport/problem.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <vector>

/// Calls between processes as problems over all members of a team.
namespace tutti::collectives {

/// One tensor of every member, as far as plans care: contiguous, of equal sizes on all members.
struct TeamColumn {
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * size_of(dtype); }
};

/// The problem of a call: two buffers for each member and column, an input and an output.
class TeamProblem {
 public:
  TeamProblem(std::size_t members, std::size_t columns) : members_(members), columns_(columns) {
    for (std::size_t member = 0; member < members; ++member)
      problem_.lane_devices.push_back(static_cast<int>(member));
    for (int side = 0; side < 2; ++side) {
      for (std::size_t member = 0; member < members; ++member) {
        problem_.homes.insert(problem_.homes.end(), columns, static_cast<transport::LaneId>(member));
      }
    }
    problem_.ready = problem_.homes;
  }

  [[nodiscard]] std::size_t members() const noexcept { return members_; }
  [[nodiscard]] transport::Place input(std::size_t member, std::size_t column,
                                       std::uint64_t offset = 0) const {
    return {static_cast<transport::BufferId>(member * columns_ + column), offset};
  }
  [[nodiscard]] transport::Place output(std::size_t member, std::size_t column,
                                        std::uint64_t offset = 0) const {
    return {static_cast<transport::BufferId>((members_ + member) * columns_ + column), offset};
  }
  void flow(transport::Place source, const std::vector<transport::Place>& targets, std::uint64_t bytes) {
    if (bytes > 0 && !targets.empty()) {
      problem_.flows.push_back({.source = source, .targets = places(targets), .row_bytes = bytes});
    }
  }
  void rows(transport::Place source, std::uint64_t source_pitch, transport::Place target,
            std::uint64_t target_pitch, std::uint64_t row_bytes, std::uint64_t rows) {
    if (row_bytes == 0 || rows == 0) return;
    problem_.flows.push_back({.source = source,
                              .targets = places({target}),
                              .row_bytes = row_bytes,
                              .rows = rows,
                              .source_pitch = source_pitch,
                              .target_pitch = target_pitch});
  }
  /// Elements of `column` from `first` on, of all members' inputs, go to `output`.
  void sum(std::size_t column, const TeamColumn& what, std::uint64_t first, std::uint64_t count,
           transport::Place output) {
    if (count == 0) return;
    std::vector<transport::Place> inputs;
    for (std::size_t member = 0; member < members_; ++member) {
      inputs.push_back(input(member, column, first * size_of(what.dtype)));
    }
    problem_.reductions.push_back(
        {.dtype = what.dtype, .count = count, .inputs = places(inputs), .output = output});
  }
  /// The outputs of all members but one, at the same offset.
  [[nodiscard]] std::vector<transport::Place> other_outputs(std::size_t member, std::size_t column,
                                                            std::uint64_t offset = 0) const {
    std::vector<transport::Place> targets;
    for (std::size_t other = 0; other < members_; ++other) {
      if (other != member) targets.push_back(output(other, column, offset));
    }
    return targets;
  }
  /// Shares staging memory out among the rings of the plan: one for each member that flows start from, one
  /// for each pair of members that a sum brings together.
  void share_staging(std::uint64_t bytes) {
    std::set<transport::LaneId> senders;
    std::set<transport::LaneId> roots;
    for (const transport::Flow& flow : problem_.flows) senders.insert(problem_.lane_of(flow.source));
    for (const transport::Reduction& reduction : problem_.reductions)
      roots.insert(problem_.lane_of(reduction.output));
    const std::size_t rings = senders.size() + roots.size() * (members_ - 1);
    constexpr std::uint64_t rounding = 1024;  // chunks and rings are rounded up
    problem_.staging_bytes = bytes / std::max<std::size_t>(rings, 1) - rounding;
  }
  [[nodiscard]] const transport::Problem& problem() const noexcept { return problem_; }

 private:
  transport::PlaceRange places(const std::vector<transport::Place>& list) {
    const transport::PlaceRange range{static_cast<std::uint32_t>(problem_.places.size()),
                                      static_cast<std::uint32_t>(list.size())};
    problem_.places.insert(problem_.places.end(), list.begin(), list.end());
    return range;
  }

  std::size_t members_;
  std::size_t columns_;
  transport::Problem problem_;
};

/// All sums cut into one part per member, which then goes to all others; small ones are all the first
/// member's.
void describe_shared_sums(TeamProblem& problem, std::span<const TeamColumn> columns);

}  // namespace tutti::collectives
