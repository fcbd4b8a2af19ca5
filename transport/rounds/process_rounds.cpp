// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/process_rounds.hpp"

#include "settings/environment.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/rounds.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/windows/device_name.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
bool ProcessRounds::are_in_question() const {
  // Virtual devices gain nothing by rounds.
  const RoundsChoice choice = Environment::get().rounds;
  if (choice == RoundsChoice::off ||
      (choice == RoundsChoice::automatic && runtime_.backend().kind() == BackendKind::host))
    return false;
  if (problem_.reduce_kind == ReduceKind::compiled) return false;  // their kernels know what they combine by
  const std::set<int> devices(problem_.lane_devices.begin(), problem_.lane_devices.end());
  return problem_.mode == LaunchMode::eager && !problem_.is_captured && devices.size() > 1 &&
         devices.size() == problem_.lane_devices.size() &&
         std::ranges::find(problem_.homes, host_lane) == problem_.homes.end();
}

std::uint64_t ProcessRounds::largest_payload() const {
  return process_rounds_to(problem_.collective, problem_.lane_devices.size(), problem_.shape.tensors > 1);
}

std::string ProcessRounds::preference() const {
  const std::uint64_t limit = largest_payload();
  if (problem_.shape.payload > limit) {
    return fmt::format("{} bytes are more than the {} up to which they are faster", problem_.shape.payload,
                       limit);
  }
  if (Environment::get().rounds == RoundsChoice::on) return {};
  if (problem_.lane_devices.size() > process_rounds_devices)
    return fmt::format("signals are faster among more than {} devices", process_rounds_devices);
  if (!are_all_joined_by_nvlink(runtime_.backend(), problem_.lane_devices))
    return "not all devices are joined by NVLink";
  return {};
}

bool ProcessRounds::is_one_for_each_device() const {
  const auto are_apart = [this](std::span<const Place> places) {
    std::set<LaneId> lanes;
    return std::ranges::all_of(
        places, [&](const Place& place) { return lanes.insert(problem_.lane_of(place)).second; });
  };
  if (problem_.collective == Collective::broadcast) {
    return std::ranges::all_of(problem_.flows, [&](const Flow& flow) {
      const std::span<const Place> targets = problem_.places_of(flow.targets);
      const LaneId source = problem_.lane_of(flow.source);
      const auto at_home = std::ranges::count_if(
          targets, [&](const Place& target) { return problem_.lane_of(target) == source; });
      const auto away = targets.size() - static_cast<std::size_t>(at_home);
      return away == problem_.lane_devices.size() - 1 && are_apart(targets);
    });
  }
  return std::ranges::all_of(problem_.reductions, [&](const Reduction& reduction) {
    return are_apart(problem_.places_of(reduction.inputs));
  });
}

std::string ProcessRounds::refusal(const Reach& reach) {
  if (!is_one_for_each_device()) return "a device has several of the operands, or none";
  const BackendKind backend = runtime_.backend().kind();
  if (backend == BackendKind::cuda) {  // not through slots: no windows for nothing
    const CallShape& shape = problem_.shape;
    if (shape.has_rows_apart) return "rows are apart in memory";
    if (shape.inseparable_bytes > 8 && shape.largest_message() <= round_tuning_of(backend).direct_from &&
        are_all_joined_by_nvlink(runtime_.backend(), problem_.lane_devices))
      return "low-latency lines would split elements of 16 bytes";
    if (const std::size_t most = Registrations::most_exposed / (2 * problem_.lane_devices.size());
        shape.busiest_member() > process_inbox_payload && shape.tensors > most)
      return fmt::format("no more than {} tensors can be read in place", most);
    const std::uint64_t limit = largest_payload();
    if (const std::uint64_t busiest = shape.busiest_member(); busiest > limit) {
      return fmt::format(
          "a device would send or receive {} bytes, more than the {} up to which they are faster", busiest,
          limit);
    }
  }
  std::vector<int> devices = problem_.lane_devices;
  std::ranges::sort(devices);
  for (const int device : devices) {
    for (const int peer : devices) {
      if (!reach(device, peer)) return fmt::format("device {} does not reach device {}", device, peer);
    }
  }
  const ProcessTeams::Found found = runtime_.part<ProcessTeams>().find_or_make(devices);
  are_refused_for_now_ = found.is_for_now;
  if (found.team == nullptr) return found.refusal;
  team_ = found.team;
  lanes_.resize(devices.size());
  std::iota(lanes_.begin(), lanes_.end(), LaneId{0});
  std::ranges::sort(lanes_, {}, [this](LaneId lane) { return problem_.lane_devices[lane]; });

  Plan plan = lower_rounds(problem_of_team(), team_->capabilities());
  const RoundPlan& rounds = *rounds_of(plan);
  if (rounds.round_count == 0) return "nothing goes from device to device";
  if (rounds.protocol == Protocol::slots && backend == BackendKind::cuda)
    return "they would go " + plan.reasons.front();
  plan_ = std::move(plan);
  return {};
}

Problem ProcessRounds::problem_of_team() const {
  std::vector<LaneId> member_of(lanes_.size());
  for (std::size_t member = 0; member < lanes_.size(); ++member)
    member_of[lanes_[member]] = static_cast<LaneId>(member);
  Problem problem = problem_;
  problem.is_of_team = true;
  problem.root = member_of[problem_.root];
  for (LaneId& home : problem.homes) home = member_of[home];
  problem.ready = problem.homes;
  for (std::size_t member = 0; member < lanes_.size(); ++member)
    problem.lane_devices[member] = problem_.lane_devices[lanes_[member]];
  return problem;
}

Plan ProcessRounds::plan(Plan otherwise) {
  Plan plan = *std::exchange(plan_, std::nullopt);
  plan.process_rounds = ProcessRoundsUse{
      .team = team_, .lanes = lanes_, .otherwise = std::make_shared<const Plan>(std::move(otherwise))};
  return plan;
}

}  // namespace tutti::transport::team
