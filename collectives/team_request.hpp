// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/packing.hpp"
#include "collectives/team_problem.hpp"
#include "transport/plan_cache.hpp"
#include "transport/ranks/round_choice.hpp"
#include "transport/team/signature.hpp"
#include "transport/tuning.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::collectives {

/// What a call between processes asks for, without addresses: all that its way and its plan depend on. The
/// same on all ranks, but for `to_itself`.
struct TeamRequest {
  Collective collective = Collective::barrier;
  std::size_t root = 0;
  std::vector<TeamColumn> columns;
  // Of scatter and gather, whose column is what there is per unit of length along the dimension.
  Cut geometry;
  std::vector<std::uint64_t> lengths;  ///< of all members' parts; empty until they are known
  /// 1 where a member has an output besides what it gives: by column, of a broadcast's root; by member, of an
  /// all_gather. Of own members only: other members' parts of a plan do not depend on it. Empty: nowhere.
  std::vector<std::uint64_t> to_itself;

  /// Keeps the memory.
  void clear() noexcept;
  /// Whether tensors are there to go from member to member.
  [[nodiscard]] bool moves() const noexcept { return !columns.empty() && moves_tensors(collective); }
  [[nodiscard]] Collective of_one_tensor() const noexcept { return traits_of(collective).of_one_tensor; }
  [[nodiscard]] transport::ranks::CallShape shape(std::size_t members) const noexcept;
  void add_to(transport::PlanKey& key) const;
};

/// The request as work of all members; `is_relayed`: they hand on what they have got or added.
[[nodiscard]] TeamProblem problem_of(const TeamRequest& request, std::size_t members, bool is_relayed,
                                     const transport::RanksTuning& tuning);

}  // namespace tutti::collectives
