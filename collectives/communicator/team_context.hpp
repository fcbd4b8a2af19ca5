// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "collectives/call/arguments.hpp"
#include "collectives/call/request.hpp"
#include "collectives/communicator/message_scratch.hpp"
#include "device/runtime.hpp"
#include "diagnostics/watching.hpp"
#include "transport/launch/launch.hpp"
#include "transport/launch/messages.hpp"
#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/rounds/round_launcher.hpp"
#include "transport/select/plan_cache.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/symmetric/symmetric_allocation.hpp"
#include "transport/team/team.hpp"
#include "tutti/device.hpp"
#include "tutti/exchange.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Memory that each call fills again without allocating. The holder of the lock of the team's calls may use
/// it from `begin` to `let_go`.
struct TeamScratch {
  /// Empties what the previous call has left. (Members that it does not empty are written before they are
  /// read.)
  void begin() noexcept {
    streams.clear();
    request.clear();
  }
  /// Drops the call's tensors: none outlives its call here.
  void let_go() noexcept {
    inputs.clear();
    outputs.clear();
    links.items.clear();
  }

  std::vector<backend::StreamRef> streams;  ///< of local members
  Request request;
  SpareOperands spare_operands;
  std::vector<Tensor> inputs;    ///< by local member, then column; undefined where there is none
  std::vector<Tensor> outputs;   ///< likewise
  transport::Operands operands;  ///< by buffer and member of the plan
  LinkScratch links;             ///< of messages
};

/// The state that the calls of one communicator share: its team, who launches the team's rounds, and the
/// plans that have been made for it. Calls of several threads take turns by the team's lock.
class TeamContext {
 public:
  /// Collective over the exchange.
  TeamContext(Exchange& exchange, const transport::team::Team::Settings& settings);

  /// Returns itself. Throws Error(unsupported) in a forked child.
  TeamContext& require_own_process();
  /// Throws Error(unsupported), by `arguments`, if the communicator's options limit the multiprocessors of
  /// kernels: for kernels that are compiled at run time, which cannot be limited.
  void require_unbounded(const Arguments& arguments) const;

  [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }
  /// Returns a reference that tells whether the context still exists.
  [[nodiscard]] std::weak_ptr<TeamContext> watch() const noexcept { return self_; }
  /// Returns the devices of the local members.
  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }
  [[nodiscard]] transport::team::Team& team() noexcept { return team_; }
  [[nodiscard]] const transport::team::Team& team() const noexcept { return team_; }
  [[nodiscard]] transport::team::RoundLauncher& launcher() noexcept { return launcher_; }
  [[nodiscard]] transport::MessageLauncher& messages() noexcept { return messages_; }
  [[nodiscard]] const transport::team::TeamCapabilities& capabilities() const noexcept {
    return capabilities_;
  }
  [[nodiscard]] TeamScratch& scratch() noexcept { return scratch_; }
  /// Returns the symmetric memory that has been made, some of which may be gone; for the holder of the lock
  /// of the team's calls, and for who destroys the team.
  [[nodiscard]] std::vector<std::weak_ptr<transport::team::SymmetricAllocation>>& symmetric() noexcept {
    return symmetric_;
  }
  /// Returns the number under which traces show the team; no other team of the process has it.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }

  /// Returns the problem of the call that is being made, as far as it is known before the shape of its
  /// request.
  [[nodiscard]] transport::Problem outline_of(const Request& request, std::size_t root) const;
  /// Returns the plan of a call outside captures, and does not keep it.
  [[nodiscard]] transport::Plan make_plan(const Request& request, std::size_t root) const;
  /// Returns the plan of the call that is being made, from the cache if it was made before.
  [[nodiscard]] std::shared_ptr<const transport::Plan> plan_for(const Request& request, std::size_t root);
  /// Returns the plan of messages among all members, all of which are local, in a round.
  [[nodiscard]] std::shared_ptr<const transport::Plan> plan_for(
      std::span<const transport::InsideMessage> messages);

  void set_last_plan(std::shared_ptr<const transport::Plan> plan, bool has_stand_ins = false) noexcept {
    last_plan_ = std::move(plan);
    last_has_stand_ins_ = has_stand_ins;
  }
  /// Returns the plan of the last call; empty strings before the first.
  [[nodiscard]] PlanSummary last_plan() const;
  /// Notes that memory of a local member is copied before a call or after it, and why, and tells it in the
  /// log once, but not of managed memory of virtual devices.
  void tell_of_stand_ins(std::size_t local, std::string_view reason, const void* memory);
  /// Returns the last note in words; empty if there is none.
  [[nodiscard]] std::string stand_ins_in_words() const;

 private:
  [[nodiscard]] std::vector<int> lane_devices() const;
  /// Completes an outline with lanes, homes, flows and reductions, and plans.
  [[nodiscard]] transport::Plan plan(const Request& request, transport::Problem problem) const;

  Runtime& runtime_ = Runtime::get();
  std::vector<Device> devices_;
  transport::team::Team team_;
  transport::team::RoundLauncher launcher_;
  transport::team::TeamCapabilities capabilities_;
  transport::MessageLauncher messages_;
  transport::PlanCache plans_;
  transport::PlanKey key_;  ///< of the call that is being made; keeps its memory
  std::shared_ptr<const transport::Plan> last_plan_;
  bool last_has_stand_ins_ = false;
  std::size_t last_member_with_stand_ins_ = 0;
  std::string reason_of_stand_ins_;  ///< the last one; empty if there has been none
  bool has_warned_of_stand_ins_ = false;
  TeamScratch scratch_;
  std::vector<std::weak_ptr<transport::team::SymmetricAllocation>> symmetric_;
  std::uint64_t number_ = watching::number_team();
  const std::shared_ptr<TeamContext> self_{this, [](TeamContext*) {}};
};

}  // namespace tutti::collectives
