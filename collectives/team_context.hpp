// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "collectives/request.hpp"
#include "runtime.hpp"
#include "transport/plan.hpp"
#include "transport/plan_cache.hpp"
#include "transport/problem.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/rounds/round_launcher.hpp"
#include "transport/steps/launch.hpp"
#include "transport/team/signature.hpp"
#include "transport/team/team.hpp"
#include "tutti/device.hpp"
#include "tutti/exchange.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::collectives {

/// What one call fills and the next one fills again, without asking for memory anew.
struct TeamScratch {
  std::vector<backend::StreamRef> streams;  ///< of local members
  Request request;
  std::vector<Tensor> inputs;    ///< by local member, then column; undefined where there is none
  std::vector<Tensor> outputs;   ///< likewise
  transport::Operands operands;  ///< by buffer and member of the plan
  transport::PlanKey key;
};

/// What the calls of one communicator share.
struct TeamContext {
  /// Collective over the exchange.
  TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings);

  /// Throws Error(unsupported) in a forked child. Returns itself.
  TeamContext& require_own_process();

  /// The request as a problem of all members, with flows and reductions as far as its shape is known.
  [[nodiscard]] transport::Problem problem_of(const Request& request, std::size_t root,
                                              bool is_captured) const;
  /// Chooses and plans.
  [[nodiscard]] transport::Plan make_plan(const transport::Problem& problem) const;

  Runtime& runtime = Runtime::get();
  std::vector<Device> devices;
  transport::ranks::Team team;
  transport::ranks::RoundLauncher launcher;
  transport::ranks::TeamMeans means;
  transport::PlanCache plans;
  std::shared_ptr<const transport::Plan> last_plan;
  TeamScratch scratch;
};

}  // namespace tutti::collectives
