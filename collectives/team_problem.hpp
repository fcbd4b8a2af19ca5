// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/pieces.hpp"
#include "transport/ranks/round_plan.hpp"
#include "transport/tuning.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Calls between processes as work of all members of a team.
namespace tutti::collectives {

/// One tensor of every member, as far as plans care: contiguous, of equal sizes on all members.
struct TeamColumn {
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
  [[nodiscard]] std::uint64_t bytes() const noexcept { return elements * size_of(dtype); }
};

/// Builds the work of a call: two buffers for each member and column, an input and an output.
class TeamProblem {
 public:
  TeamProblem(std::size_t members, std::size_t columns) : members_(members), columns_(columns) {
    for (int side = 0; side < 2; ++side) {
      for (std::size_t member = 0; member < members; ++member) {
        work_.homes.insert(work_.homes.end(), columns, static_cast<transport::LaneId>(member));
      }
    }
    next_stage();
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
  /// The outputs of all members but one, at the same offset.
  [[nodiscard]] std::vector<transport::Place> other_outputs(std::size_t member, std::size_t column,
                                                            std::uint64_t offset = 0) const {
    std::vector<transport::Place> targets;
    for (std::size_t other = 0; other < members_; ++other) {
      if (other != member) targets.push_back(output(other, column, offset));
    }
    return targets;
  }

  /// Likewise, without those of two members.
  [[nodiscard]] std::vector<transport::Place> other_outputs(std::size_t member, std::size_t and_member,
                                                            std::size_t column, std::uint64_t offset) const {
    std::vector<transport::Place> targets = other_outputs(member, column, offset);
    std::erase(targets, output(and_member, column, offset));
    return targets;
  }

  /// Said of calls of which no output in the work is in memory that its member gives to others.
  void outputs_are_apart() { work_.outputs_are_apart = true; }
  /// What is added from now on may use what was added before.
  void next_stage() { work_.stages.emplace_back(); }
  void flow(transport::Place source, const std::vector<transport::Place>& targets, std::uint64_t bytes) {
    if (bytes > 0 && !targets.empty()) {
      stage().flows.push_back({.source = source, .targets = places(targets), .row_bytes = bytes});
    }
  }
  void rows(transport::Place source, std::uint64_t source_pitch, transport::Place target,
            std::uint64_t target_pitch, std::uint64_t row_bytes, std::uint64_t rows) {
    if (row_bytes == 0 || rows == 0) return;
    stage().flows.push_back({.source = source,
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
    stage().reductions.push_back(
        {.dtype = what.dtype, .count = count, .inputs = places(inputs), .output = output});
  }
  /// The same for bytes of one input: whoever takes them so can hand them on by a relay.
  void sum_of_one(transport::Place input, std::uint64_t bytes, transport::Place output) {
    if (bytes == 0) return;
    stage().reductions.push_back(
        {.dtype = DType::uint8, .count = bytes, .inputs = places({input}), .output = output});
  }
  [[nodiscard]] const transport::ranks::TeamWork& work() const noexcept { return work_; }

 private:
  [[nodiscard]] transport::ranks::TeamWork::Stage& stage() { return work_.stages.back(); }
  transport::PlaceRange places(const std::vector<transport::Place>& list) {
    const transport::PlaceRange range{static_cast<std::uint32_t>(work_.places.size()),
                                      static_cast<std::uint32_t>(list.size())};
    work_.places.insert(work_.places.end(), list.begin(), list.end());
    return range;
  }

  std::size_t members_;
  std::size_t columns_;
  transport::ranks::TeamWork work_;
};

/// The sums of all columns on all members. Small ones are made by every member for itself: one round. Larger
/// ones are cut into stages of about one message, and these into a share for each member, who sums it and
/// gives it to the others.
void describe_shared_sums(TeamProblem& problem, std::span<const TeamColumn> columns,
                          const transport::RanksTuning& tuning);

/// What one member does of a payload.
struct Share {
  std::size_t member;
  std::vector<transport::Slice> slices;  ///< by column; may be none
};
/// A payload cut into nearly even shares, one for each member but the root. (With a share for the root, too,
/// its link would have more to carry than the others': the whole payload goes over it anyway.)
[[nodiscard]] std::vector<Share> shares_of_others(std::size_t root, std::size_t members,
                                                  std::span<const TeamColumn> columns);

/// A sum of which each member but the root makes a share, in an output of its own, and hands it on to the
/// root.
void describe_relayed_reduce(TeamProblem& problem, std::span<const TeamColumn> columns, std::size_t root);

/// A broadcast of which the root sends each other member a share, who hands it on to the rest: so the root
/// sends once what it would else send to all. `to_itself`: by column, whether the root has an output too,
/// which is not its input; empty: nowhere.
void describe_relayed_broadcast(TeamProblem& problem, std::span<const TeamColumn> columns, std::size_t root,
                                std::span<const std::uint64_t> to_itself);

}  // namespace tutti::collectives
