// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/plan_builder.hpp"

#include "transport/plan/peer_uses.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace tutti::transport {
namespace {

/// n lanes that all wait for n others need n·(n-1) orders pairwise and 2·(n-1) through a hub, and a wait
/// costs the host more than a microsecond on GPUs.
bool is_cheaper_through(LaneId hub, const std::map<LanePair, std::size_t>& pairs) {
  std::set<LanePair> through_hub;
  for (const auto& [pair, step] : pairs) {
    if (pair.earlier != hub) through_hub.insert({pair.earlier, hub});
    if (pair.later != hub) through_hub.insert({hub, pair.later});
  }
  return through_hub.size() < pairs.size();
}

/// Steps that make lanes wait for others, to be put in before or after certain steps of the body.
class Orders {
 public:
  Orders(Phase phase, std::size_t body_size, std::uint32_t& mark_count)
      : phase_(phase), steps_(body_size + 1), mark_count_(mark_count) {}

  /// Work of `pair.earlier` up to position `recorded` is done before work of `pair.later` from `needed` on.
  void add(const LanePair& pair, std::size_t recorded, std::size_t needed) {
    const auto [mark, is_new] = marks_.try_emplace({pair.earlier, recorded}, mark_count_);
    if (is_new) {
      ++mark_count_;
      put(recorded, RecordStep{pair.earlier, mark->second});
    }
    put(needed, WaitStep{pair.later, mark->second});
  }
  /// The same for all pairs, at one position: what leads to the hub comes first.
  void add_through(LaneId hub, const std::map<LanePair, std::size_t>& pairs, std::size_t position) {
    std::set<LaneId> earlier;
    std::set<LaneId> later;
    for (const auto& [pair, step] : pairs) {
      earlier.insert(pair.earlier);
      later.insert(pair.later);
    }
    earlier.erase(hub);
    later.erase(hub);
    for (const LaneId lane : earlier) add({lane, hub}, position, position);
    for (const LaneId lane : later) add({hub, lane}, position, position);
  }
  /// Returns the steps that belong before step `position` of the body.
  [[nodiscard]] std::vector<PlannedStep>& before(std::size_t position) { return steps_[position]; }

 private:
  void put(std::size_t position, Step step) { steps_[position].push_back({std::move(step), phase_}); }

  Phase phase_;
  std::vector<std::vector<PlannedStep>> steps_;
  std::uint32_t& mark_count_;
  std::map<std::pair<LaneId, std::size_t>, MarkId> marks_;
};

}  // namespace

PlanBuilder::PlanBuilder(const Problem& problem) : problem_(problem) {
  plan_.lane_devices = problem.lane_devices;
  plan_.homes = problem.homes;
  plan_.operand_count = problem.homes.size();
}

LaneId PlanBuilder::side_lane(LaneId beside) {
  const auto lane = static_cast<LaneId>(plan_.lane_devices.size());
  plan_.lane_devices.push_back(device_of(beside));
  plan_.beside.push_back(beside);
  return lane;
}

BufferId PlanBuilder::temporary(LaneId lane, std::uint64_t bytes) {
  const auto buffer = static_cast<BufferId>(plan_.homes.size());
  plan_.homes.push_back(lane);
  plan_.temporaries.push_back({bytes, lane});
  return buffer;
}

MarkId PlanBuilder::record(LaneId lane) {
  const MarkId mark = plan_.mark_count++;
  add(lane, RecordStep{lane, mark});
  return mark;
}

void PlanBuilder::wait(LaneId lane, MarkId mark) {
  add(lane, WaitStep{lane, mark});
  used_.insert(lane);
}

void PlanBuilder::order(LaneId earlier, LaneId later) {
  if (earlier != later) wait(later, record(earlier));
}

void PlanBuilder::copy(const CopyStep& step) {
  touch(step.lane, step.source.buffer);
  touch(step.lane, step.target.buffer);
  add(step.lane, step);
}

void append(const Move& move, std::span<const Place> targets, std::vector<backend::FanOutSegment>& segments,
            std::vector<Place>& pointers) {
  const auto source = static_cast<std::uint32_t>(pointers.size());
  pointers.push_back(move.source);
  pointers.insert(pointers.end(), targets.begin(), targets.end());
  segments.push_back({.row_bytes = move.row_bytes,
                      .source_pitch = move.source_pitch,
                      .target_pitch = move.target_pitch,
                      .rows = static_cast<std::uint32_t>(move.rows),
                      .source = source,
                      .first_target = source + 1,
                      .target_count = static_cast<std::uint32_t>(targets.size())});
}

void PlanBuilder::move(LaneId lane, const Move& move, std::span<const Place> targets) {
  if (move.rows > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::internal, "PlanBuilder::move: more rows than a segment can have");
  }
  const auto found = std::ranges::find(pending_moves_, lane, &FanOutStep::lane);
  FanOutStep& step =
      found != pending_moves_.end() ? *found : pending_moves_.emplace_back(FanOutStep{.lane = lane});
  append(move, targets, step.segments, step.pointers);
}

void PlanBuilder::launch_moves(LaneId lane) {
  const auto found = std::ranges::find(pending_moves_, lane, &FanOutStep::lane);
  if (found == pending_moves_.end()) return;
  touch_all(lane, found->pointers);
  add(lane, std::move(*found));
  pending_moves_.erase(found);
}

void PlanBuilder::sum(LaneId lane, DType dtype, std::uint64_t count, std::span<const Place> inputs,
                      Place output) {
  const auto input_count = static_cast<std::uint32_t>(inputs.size());
  const auto found = std::ranges::find_if(pending_reductions_, [&](const ReductionStep& step) {
    return step.lane == lane && step.dtype == dtype && step.input_count == input_count;
  });
  ReductionStep& step = found != pending_reductions_.end()
                            ? *found
                            : pending_reductions_.emplace_back(
                                  ReductionStep{.lane = lane, .dtype = dtype, .input_count = input_count});

  const auto first = static_cast<std::uint32_t>(step.pointers.size());
  step.pointers.insert(step.pointers.end(), inputs.begin(), inputs.end());
  step.pointers.push_back(output);
  step.segments.push_back({.count = count, .first_input = first, .first_output = first + input_count});
}

void PlanBuilder::launch_sums(LaneId lane) {
  const auto is_elsewhere = [lane](const ReductionStep& step) { return step.lane != lane; };
  const auto mine =
      std::stable_partition(pending_reductions_.begin(), pending_reductions_.end(), is_elsewhere);
  for (auto step = mine; step != pending_reductions_.end(); ++step) {
    touch_all(lane, step->pointers);
    add(lane, std::move(*step));
  }
  pending_reductions_.erase(mine, pending_reductions_.end());
}

void PlanBuilder::add_on_all_lanes(Step step) {
  for (std::size_t buffer = 0; buffer < plan_.operand_count; ++buffer) {
    const LaneId home = plan_.homes[buffer];
    if (home != host_lane && plan_.lane_devices[home] != remote_device)
      touch(home, static_cast<BufferId>(buffer));
  }
  body_.push_back(std::move(step));
  for (std::size_t lane = 0; lane < plan_.lane_devices.size(); ++lane) {
    if (plan_.lane_devices[lane] == remote_device) continue;
    used_.insert(static_cast<LaneId>(lane));
    last_step_[static_cast<LaneId>(lane)] = body_.size() - 1;
  }
}

void PlanBuilder::add(LaneId lane, Step step) {
  last_step_[lane] = body_.size();
  body_.push_back(std::move(step));
}

void PlanBuilder::touch(LaneId lane, BufferId buffer) {
  used_.insert(lane);
  const LaneId home = plan_.homes[buffer];
  if (home == host_lane) {
    host_uses_.insert({buffer, lane});
    return;
  }
  if (const LaneId ready = problem_.ready[buffer]; ready != lane)
    entry_.try_emplace({ready, lane}, body_.size());
  if (home != lane) exit_[{lane, home}] = body_.size();
}

void PlanBuilder::touch_all(LaneId lane, const std::vector<Place>& places) {
  for (const Place& place : places) touch(lane, place.buffer);
}

std::optional<Star> PlanBuilder::star() const {
  if (used_.size() != 1) return std::nullopt;
  Star star;
  for (const auto& [pair, step] : entry_) star.before.push_back(pair.earlier);
  for (const auto& [pair, step] : exit_) star.after.push_back(pair.later);
  return star;
}

/// The body, with the orders at its two ends where they cost least: pairwise ones as late and as early as
/// lanes need them, so that they overlap with other work; orders through the hub lane all at the ends.
std::vector<PlannedStep> PlanBuilder::assemble() {
  const LaneId hub = plan_.hub_lane;
  Orders entry(Phase::entry, body_.size(), plan_.mark_count);
  if (is_cheaper_through(hub, entry_)) {
    entry.add_through(hub, entry_, 0);
  } else {
    for (const auto& [pair, first] : entry_) entry.add(pair, 0, first);
  }
  Orders exit(Phase::exit, body_.size(), plan_.mark_count);
  if (is_cheaper_through(hub, exit_)) {
    exit.add_through(hub, exit_, body_.size());
  } else {
    for (const auto& [pair, last] : exit_) {
      // Not before the later lane's own steps, which would wait for nothing.
      const auto own = last_step_.find(pair.later);
      exit.add(pair, last + 1, own == last_step_.end() ? last + 1 : std::max(last, own->second) + 1);
    }
  }
  std::vector<PlannedStep> steps;
  for (std::size_t index = 0; index <= body_.size(); ++index) {
    for (PlannedStep& step : exit.before(index)) steps.push_back(std::move(step));
    for (PlannedStep& step : entry.before(index)) steps.push_back(std::move(step));
    if (index < body_.size()) steps.push_back({std::move(body_[index]), Phase::body});
  }
  return steps;
}

Plan PlanBuilder::finish(std::string transport, std::string algorithm) {
  if (!pending_moves_.empty() || !pending_reductions_.empty()) {
    throw Error(ErrorCode::internal, "PlanBuilder::finish: a kernel was started and not launched");
  }
  plan_.summary = {std::move(transport), std::move(algorithm)};
  plan_.most_multiprocessors = problem_.most_multiprocessors;
  plan_.used_lanes.assign(used_.begin(), used_.end());
  if (!used_.empty()) plan_.hub_lane = used_.contains(problem_.root) ? problem_.root : *used_.begin();
  plan_.home_lane = problem_.root < problem_.lane_devices.size() ? problem_.root : plan_.hub_lane;
  plan_.star = star();
  plan_.steps = assemble();
  plan_.peer_uses = find_peer_uses(problem_, plan_);
  plan_.host_uses.assign(host_uses_.begin(), host_uses_.end());
  return std::move(plan_);
}

}  // namespace tutti::transport
