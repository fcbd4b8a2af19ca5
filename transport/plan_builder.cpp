#include "transport/plan_builder.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace tutti::transport {
namespace {

/// Routes every order through `hub` where that takes fewer of them: n lanes that all wait for n others need
/// n·(n-1) orders pairwise and 2·(n-1) through a hub, and a wait costs the host more than a microsecond on
/// GPUs.
std::set<LanePair> cheapest(const std::set<LanePair>& pairs, LaneId hub) {
  std::set<LanePair> through_hub;
  for (const LanePair& pair : pairs) {
    if (pair.earlier != hub) through_hub.insert({pair.earlier, hub});
    if (pair.later != hub) through_hub.insert({hub, pair.later});
  }
  return through_hub.size() < pairs.size() ? through_hub : pairs;
}

}  // namespace

PlanBuilder::PlanBuilder(const Problem& problem) : problem_(problem) {
  plan_.lane_devices = problem.lane_devices;
  plan_.homes = problem.homes;
  plan_.operand_count = problem.homes.size();
}

BufferId PlanBuilder::pinned_temporary(std::uint64_t bytes) {
  const auto buffer = static_cast<BufferId>(plan_.homes.size());
  plan_.homes.push_back(host_lane);
  plan_.temporaries.push_back({bytes});
  return buffer;
}

MarkId PlanBuilder::record(LaneId lane) {
  const MarkId mark = plan_.mark_count++;
  plan_.body.emplace_back(RecordStep{lane, mark});
  return mark;
}

void PlanBuilder::wait(LaneId lane, MarkId mark) {
  plan_.body.emplace_back(WaitStep{lane, mark});
  used_.insert(lane);
}

void PlanBuilder::order(LaneId earlier, LaneId later) {
  if (earlier != later) wait(later, record(earlier));
}

void PlanBuilder::copy(const CopyStep& step) {
  touch(step.lane, step.source.buffer);
  touch(step.lane, step.target.buffer);
  plan_.body.emplace_back(step);
}

void PlanBuilder::move(LaneId lane, const Move& move, std::span<const Place> targets) {
  const auto found = std::ranges::find(pending_moves_, lane, &FanOutStep::lane);
  FanOutStep& step =
      found != pending_moves_.end() ? *found : pending_moves_.emplace_back(FanOutStep{.lane = lane});

  const auto source = static_cast<std::uint32_t>(step.pointers.size());
  step.pointers.push_back(move.source);
  step.pointers.insert(step.pointers.end(), targets.begin(), targets.end());
  step.segments.push_back({.row_bytes = move.row_bytes,
                           .source_pitch = move.source_pitch,
                           .target_pitch = move.target_pitch,
                           .rows = static_cast<std::uint32_t>(move.rows),
                           .source = source,
                           .first_target = source + 1,
                           .target_count = static_cast<std::uint32_t>(targets.size())});
  touch(lane, move.source.buffer);
  for (const Place& target : targets) touch(lane, target.buffer);
}

void PlanBuilder::launch_moves(LaneId lane) {
  const auto found = std::ranges::find(pending_moves_, lane, &FanOutStep::lane);
  if (found == pending_moves_.end()) return;
  plan_.body.emplace_back(std::move(*found));
  pending_moves_.erase(found);
}

void PlanBuilder::sum(LaneId lane, DType dtype, std::uint64_t count, std::span<const Place> inputs,
                      Place output) {
  const auto input_count = static_cast<std::uint32_t>(inputs.size());
  const auto found = std::ranges::find_if(pending_sums_, [&](const SumStep& step) {
    return step.lane == lane && step.dtype == dtype && step.input_count == input_count;
  });
  SumStep& step =
      found != pending_sums_.end()
          ? *found
          : pending_sums_.emplace_back(SumStep{.lane = lane, .dtype = dtype, .input_count = input_count});

  const auto first = static_cast<std::uint32_t>(step.pointers.size());
  step.pointers.insert(step.pointers.end(), inputs.begin(), inputs.end());
  step.pointers.push_back(output);
  step.segments.push_back({.count = count, .first_input = first, .first_output = first + input_count});
  for (const Place& input : inputs) touch(lane, input.buffer);
  touch(lane, output.buffer);
}

void PlanBuilder::launch_sums(LaneId lane) {
  const auto is_elsewhere = [lane](const SumStep& step) { return step.lane != lane; };
  const auto mine = std::stable_partition(pending_sums_.begin(), pending_sums_.end(), is_elsewhere);
  for (auto step = mine; step != pending_sums_.end(); ++step) plan_.body.emplace_back(std::move(*step));
  pending_sums_.erase(mine, pending_sums_.end());
}

void PlanBuilder::accelerate(std::shared_ptr<const Accelerated> work) {
  for (std::size_t lane = 0; lane < plan_.lane_devices.size(); ++lane)
    used_.insert(static_cast<LaneId>(lane));
  plan_.body.emplace_back(AcceleratedStep{std::move(work)});
}

void PlanBuilder::touch(LaneId lane, BufferId buffer) {
  used_.insert(lane);
  const LaneId home = plan_.homes[buffer];
  if (home == host_lane) {
    host_uses_.insert({buffer, lane});
    return;
  }
  if (const LaneId ready = problem_.ready[buffer]; ready != lane) entry_.insert({ready, lane});
  if (home != lane) exit_.insert({lane, home});
}

void PlanBuilder::derive_ends() {
  const auto emit = [this](const std::set<LanePair>& pairs, std::vector<Step>& steps) {
    const LaneId hub = plan_.home_lane;
    const std::set<LanePair> chosen = cheapest(pairs, hub);
    // Through a hub, what leads to it comes first.
    for (const bool to_hub : {true, false}) {
      std::pair<LaneId, MarkId> last{
          host_lane, 0};  // pairs are sorted by their earlier lane: one record for all its waits
      for (const LanePair& pair : chosen) {
        if ((pair.later == hub) != to_hub) continue;
        if (pair.earlier != last.first) {
          last = {pair.earlier, plan_.mark_count++};
          steps.emplace_back(RecordStep{pair.earlier, last.second});
        }
        steps.emplace_back(WaitStep{pair.later, last.second});
      }
    }
  };
  emit(entry_, plan_.entry);
  emit(exit_, plan_.exit);
}

Plan PlanBuilder::finish(std::string transport, std::string algorithm) {
  if (!pending_moves_.empty() || !pending_sums_.empty()) {
    throw Error(ErrorCode::internal, "PlanBuilder::finish: a kernel was started and not launched");
  }
  plan_.summary = {std::move(transport), std::move(algorithm)};
  plan_.used_lanes.assign(used_.begin(), used_.end());
  if (used_.contains(problem_.root)) {
    plan_.home_lane = problem_.root;
  } else if (!used_.empty()) {
    plan_.home_lane = *used_.begin();
  }
  derive_ends();
  plan_.host_uses.assign(host_uses_.begin(), host_uses_.end());
  return std::move(plan_);
}

}  // namespace tutti::transport
