// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport {

/// One rectangle of bytes read from `source`. At most 2^32 - 1 rows.
struct Move {
  Place source;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 1;
  std::uint64_t source_pitch = 0;
  std::uint64_t target_pitch = 0;
};

/// Adds a rectangle to a fan-out: a segment, and its source and targets after the other pointers.
void append(const Move& move, std::span<const Place> targets, std::vector<backend::FanOutSegment>& segments,
            std::vector<Place>& pointers);

/// An order between lanes: what is queued on `earlier` must be done before `later` goes on.
struct LanePair {
  LaneId earlier = 0;
  LaneId later = 0;
  friend auto operator<=>(const LanePair&, const LanePair&) = default;
};

/// Collects the steps of a plan and derives the order between lanes at its two ends from what each lane
/// touches.
///
/// Steps run in the order they are added, each on its lane; lanes run concurrently. The builder makes a lane
/// wait, before it first touches a buffer, for the buffer's home lane, and the home lane, after the last
/// touch, for it. The caller states other dependencies between lanes by `record` and `wait`, or `order`.
class PlanBuilder {
 public:
  explicit PlanBuilder(const Problem& problem);

  [[nodiscard]] const Problem& problem() const noexcept { return problem_; }

  [[nodiscard]] int device_of(LaneId lane) const noexcept { return plan_.lane_devices[lane]; }

  /// Adds a lane beside an operand lane: work of the same device that may overlap with it.
  [[nodiscard]] LaneId side_lane(LaneId beside);

  /// Adds pinned host memory for the duration of a launch.
  [[nodiscard]] BufferId pinned_temporary(std::uint64_t bytes) { return temporary(host_lane, bytes); }
  /// Adds memory of the lane's device for the duration of a launch.
  BufferId temporary(LaneId lane, std::uint64_t bytes);

  [[nodiscard]] MarkId record(LaneId lane);
  void wait(LaneId lane, MarkId mark);
  /// Makes `later` wait for what was added on `earlier` so far. Does nothing if they are one lane.
  void order(LaneId earlier, LaneId later);

  void copy(const CopyStep& step);
  /// Adds a piece to the kernel under construction on `lane`; `launch_moves` ends it.
  void move(LaneId lane, const Move& move, std::span<const Place> targets);
  void launch_moves(LaneId lane);
  /// Adds a sum to the kernel under construction on `lane`; `launch_sums` ends it, as one kernel per element
  /// type and number of inputs.
  void sum(LaneId lane, DType dtype, std::uint64_t count, std::span<const Place> inputs, Place output);
  void launch_sums(LaneId lane);
  /// Adds work that orders itself with all operand lanes.
  void accelerate(std::shared_ptr<const Accelerated> work) {
    add_on_all_lanes(AcceleratedStep{std::move(work)});
  }
  void add_rounds(std::shared_ptr<const team::RoundPlan> rounds) {
    add_on_all_lanes(RoundsStep{std::move(rounds)});
  }

  /// Returns the finished plan. The builder is empty afterwards.
  [[nodiscard]] Plan finish(std::string transport, std::string algorithm);

 private:
  using Pairs = std::map<LanePair, std::size_t>;

  void touch(LaneId lane, BufferId buffer);
  void touch_all(LaneId lane, const std::vector<Place>& places);
  void add(LaneId lane, Step step);
  void add_on_all_lanes(Step step);
  [[nodiscard]] std::optional<Star> star() const;
  [[nodiscard]] std::vector<PlannedStep> assemble();

  const Problem& problem_;
  Plan plan_;
  std::vector<FanOutStep> pending_moves_;
  std::vector<ReductionStep> pending_reductions_;
  std::set<LaneId> used_;
  std::vector<Step> body_;
  std::map<LaneId, std::size_t> last_step_;          ///< by lane: index into `body_` of its last step
  Pairs entry_;                                      ///< with the index of the first step that needs it
  Pairs exit_;                                       ///< with the index of the last step it waits for
  std::set<std::pair<BufferId, LaneId>> host_uses_;  ///< host buffer, lane that touches it
};

}  // namespace tutti::transport
