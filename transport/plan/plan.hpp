// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "transport/plan/problem.hpp"
#include "tutti/collectives.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Describes how a transport carries out a problem: steps over lanes and buffers, free of addresses and of
/// streams. Plans are made once per shape, cached, and launched many times.
namespace tutti::transport {

namespace team {
class ProcessTeam;
class RoundLauncher;
struct RoundPlan;
}  // namespace team

/// Index of an event that the launch records and waits for.
using MarkId = std::uint32_t;

/// Marks the work queued so far on `lane`.
struct RecordStep {
  LaneId lane = 0;
  MarkId mark = 0;
};
/// Makes later work on `lane` wait for the mark.
struct WaitStep {
  LaneId lane = 0;
  MarkId mark = 0;
};
/// One copy-engine transfer.
struct CopyStep {
  LaneId lane = 0;
  Place target;
  Place source;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 1;
  std::uint64_t target_pitch = 0;
  std::uint64_t source_pitch = 0;
};
/// Launches one kernel over a table of pieces; `pointers` is its pointer table before addresses are known.
struct FanOutStep {
  LaneId lane = 0;
  std::vector<backend::FanOutSegment> segments{};
  std::vector<Place> pointers{};
};
/// Launches one kernel that reduces in order, by the problem's operation.
struct ReductionStep {
  LaneId lane = 0;
  DType dtype = DType::float32;
  std::uint32_t input_count = 0;
  std::vector<backend::OrderedReductionSegment> segments{};
  std::vector<Place> pointers{};
};

/// A call of a team, with its place among all calls of the team.
struct TeamBinding {
  team::RoundLauncher& launcher;
  std::uint64_t sequence = 0;  ///< as `CallLog` has numbered it
};

/// Addresses, streams and operation of one launch.
struct Binding {
  backend::Backend& backend;
  const std::vector<std::byte*>& addresses;      ///< by BufferId; nullptr for buffers of other processes
  const std::vector<backend::StreamRef>& lanes;  ///< by LaneId; no stream for those of other processes
  backend::Reducing reducing{};                  ///< combines elements
  const TeamBinding* team = nullptr;             ///< of a team's plan
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;  ///< as the plan's

  [[nodiscard]] std::byte* at(Place place) const noexcept { return addresses[place.buffer] + place.offset; }
};

/// A whole collective done by a library, for instance one grouped NCCL call. It orders the lanes that it
/// touches by itself.
class Accelerated {
 public:
  Accelerated() = default;
  Accelerated(const Accelerated&) = delete;
  Accelerated& operator=(const Accelerated&) = delete;
  virtual ~Accelerated() = default;
  /// Enqueues the collective on the lanes of the buffers. Throws Error(transport_failure).
  virtual void enqueue(const Binding& binding) const = 0;
  /// Describes the collective in one line for `explain`.
  [[nodiscard]] virtual std::string in_words() const = 0;
  /// Returns the memory that it takes, approximately.
  [[nodiscard]] virtual std::size_t bytes() const noexcept = 0;
};
struct AcceleratedStep {
  std::shared_ptr<const Accelerated> work;
};

/// Runs all rounds of a team's call, which order its lanes by flags (`rounds/round_plan.hpp`).
struct RoundsStep {
  std::shared_ptr<const team::RoundPlan> rounds;
};

using Step =
    std::variant<RecordStep, WaitStep, CopyStep, FanOutStep, ReductionStep, AcceleratedStep, RoundsStep>;

/// Memory that a launch allocates: pinned memory of the host, or memory of a lane's device for its stream.
/// Temporaries of other processes' lanes have a buffer, but are allocated there.
struct Temporary {
  std::uint64_t bytes = 0;
  LaneId lane = host_lane;
};

/// The purpose of a step: steps of `entry` make lanes wait for the streams whose buffers they touch, those of
/// `body` do the work, those of `exit` make these streams wait for it. A graph that forks and joins all lanes
/// needs the body only.
enum class Phase : std::uint8_t { entry, body, exit };
struct PlannedStep {
  Step step;
  Phase phase = Phase::body;
};

/// The use of an operand by work of other devices than its own, besides that of its own.
struct PeerUse {
  BufferId buffer = 0;
  bool is_read = false;
  bool is_written = false;
  LaneId ready = 0;         ///< whose queued work must be done before, as `Problem::ready` says
  std::uint64_t bytes = 0;  ///< from the start of the operand on
};

/// The order of a plan whose body runs on the hub lane only.
struct Star {
  std::vector<LaneId> before;  ///< lanes whose queued work must be done before the body
  std::vector<LaneId> after;   ///< lanes whose later work must come after it
};

/// Tells when eager launches order the star by signals instead of the steps at the ends
/// (`transport/steps/signals.hpp`).
enum class SignalUse : std::uint8_t { never, with_help, always };

struct Plan;

/// Says how rounds of a single process are launched. The plan's lanes are the team's members.
struct ProcessRoundsUse {
  team::ProcessTeam* team = nullptr;      ///< which lives as long as the runtime
  std::vector<LaneId> lanes;              ///< by member: its lane in the call
  std::shared_ptr<const Plan> otherwise;  ///< a plan by steps, for when rounds cannot be launched
};

/// A plan: its steps are enqueued in order, each on its lane. The lanes of the operands come first; side
/// lanes follow.
struct Plan {
  PlanSummary summary;
  std::vector<std::string> reasons;  ///< why this transport and not the others, one line each
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;  ///< for its kernels, as of its problem
  bool is_provisional = false;    ///< made without all that it depends on; must not be cached
  std::vector<int> lane_devices;  ///< by lane
  std::vector<LaneId> beside;     ///< by side lane: the operand lane beside it, on the same device
  std::vector<LaneId> homes;      ///< of operands, then of temporaries
  std::size_t operand_count = 0;
  LaneId home_lane = 0;  ///< where a persistent launch starts and ends: the root's, or the first used
  LaneId hub_lane = 0;   ///< the same if it has work in the body, else the first that has
  std::vector<Temporary> temporaries;
  std::vector<PlannedStep> steps;
  std::uint32_t mark_count = 0;
  std::optional<Star> star;  ///< equivalent to the steps of `entry` and `exit`, where they have this form
  SignalUse signals = SignalUse::never;
  std::vector<LaneId> used_lanes;  ///< lanes with work in the body, ascending
  /// Host buffers and the lanes that touch them; this alone keeps these buffers from early reuse.
  std::vector<std::pair<BufferId, LaneId>> host_uses;
  std::vector<PeerUse> peer_uses;                  ///< by steps, ascending
  std::optional<ProcessRoundsUse> process_rounds;  ///< for rounds of a single process
};

/// Returns the rounds of a plan; nullptr if it has none.
[[nodiscard]] inline const team::RoundPlan* rounds_of(const Plan& plan) noexcept {
  for (const PlannedStep& planned : plan.steps) {
    if (const auto* const step = std::get_if<RoundsStep>(&planned.step)) return step->rounds.get();
  }
  return nullptr;
}

}  // namespace tutti::transport
