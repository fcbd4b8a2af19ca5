// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/plan/reach.hpp"
#include "transport/rounds/process_team.hpp"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Plans calls of a single process as rounds among its own devices: one kernel on each device, which wait for
/// one another there, instead of orders by events.
class ProcessRounds {
 public:
  ProcessRounds(Runtime& runtime, const Problem& problem) : runtime_(runtime), problem_(problem) {}

  /// Returns true if rounds are an option: the problem is of several devices, each with one lane, it is
  /// launched eagerly and not captured, and they are not switched off.
  [[nodiscard]] bool are_in_question() const;
  /// Returns why another way is better, given the size and what connects the devices; empty if rounds are.
  [[nodiscard]] std::string preference() const;
  /// Returns why rounds cannot carry the problem; empty if they can. Makes the devices' team if there is
  /// none. `reach` is called for all pairs.
  [[nodiscard]] std::string refusal(const Reach& reach);
  /// Returns true if the refusal may not hold another time.
  [[nodiscard]] bool are_refused_for_now() const noexcept { return are_refused_for_now_; }
  /// Returns the plan; there must be no refusal. `otherwise` is the plan for launches that rounds cannot do,
  /// of results that are allocated for their own streams.
  [[nodiscard]] Plan plan(Plan otherwise);

 private:
  [[nodiscard]] std::uint64_t largest_payload() const;
  /// Returns true if each sum has one input of a device, and each broadcast goes to every other device once.
  [[nodiscard]] bool is_one_for_each_device() const;
  /// Returns the problem as that of a team whose members are the devices in ascending order.
  [[nodiscard]] Problem problem_of_team() const;

  Runtime& runtime_;
  const Problem& problem_;
  std::vector<LaneId> lanes_;  ///< by member
  ProcessTeam* team_ = nullptr;
  std::optional<Plan> plan_;
  bool are_refused_for_now_ = false;
};

/// A turn to launch such rounds: nobody else launches rounds among these devices meanwhile.
struct ProcessTurn {
  std::vector<backend::StreamRef> streams;  ///< by member
  std::vector<detail::IntrusivePtr<Storage>> temporaries;
  std::unique_lock<std::mutex> lock;
};

}  // namespace tutti::transport::team
