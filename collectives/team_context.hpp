// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "collectives/team_request.hpp"
#include "runtime.hpp"
#include "transport/plan_cache.hpp"
#include "transport/ranks/round_launcher.hpp"
#include "transport/ranks/round_plan.hpp"
#include "transport/ranks/team_nccl.hpp"
#include "transport/team/signature.hpp"
#include "transport/team/team.hpp"
#include "tutti/device.hpp"
#include "tutti/exchange.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace tutti::collectives {

/// What one call fills and the next one fills again, without asking for memory anew.
struct TeamScratch {
  std::vector<backend::StreamRef> streams;  ///< of own members
  TeamRequest request;
  std::vector<Tensor> inputs;         ///< by own member, then column; undefined where there is none
  std::vector<Tensor> outputs;        ///< likewise
  std::vector<std::byte*> addresses;  ///< by buffer of the plan's work
  transport::PlanKey key;             ///< of the plan
};

/// What the calls of one communicator share.
struct TeamContext {
  using Plans = std::unordered_map<transport::PlanKey, std::shared_ptr<const transport::ranks::RoundPlan>,
                                   transport::PlanKey::Hash>;

  /// Collective over the exchange.
  TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings);

  /// Throws Error(unsupported) in a forked child. Returns itself.
  TeamContext& require_own_process();

  Runtime& runtime = Runtime::get();
  std::vector<Device> devices;
  transport::ranks::Team team;
  transport::ranks::RoundLauncher launcher;
  std::unique_ptr<transport::ranks::TeamNccl> nccl;  ///< nullptr: not used
  std::string nccl_refusal;                          ///< why not
  Plans plans;
  std::size_t plan_bytes = 0;  ///< that they take, about
  /// An operation: NCCL's.
  std::variant<std::shared_ptr<const transport::ranks::RoundPlan>, Collective> last_plan;
  TeamScratch scratch;
};

}  // namespace tutti::collectives
