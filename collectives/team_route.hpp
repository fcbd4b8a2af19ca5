// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/arguments.hpp"
#include "collectives/team_context.hpp"
#include "collectives/team_request.hpp"
#include "transport/ranks/round_choice.hpp"
#include "transport/ranks/round_plan.hpp"

#include <cstdint>
#include <string>

/// How calls between processes travel: the choice, and what comes of it. The same on all ranks.
namespace tutti::collectives {

/// Why NCCL does not carry a call.
enum class NcclObjection : std::uint8_t {
  none,  ///< it does
  is_absent,
  nothing_moves,
  one_member,
  rows_apart,
  own_order,
  dtype,
  not_faster,
  small_tensors,
  not_connected,
};

struct TeamRoute {
  NcclObjection nccl = NcclObjection::is_absent;
  transport::ranks::RoundChoice rounds;  ///< if NCCL does not carry it

  [[nodiscard]] bool is_by_nccl() const noexcept { return nccl == NcclObjection::none; }
  /// Members hand on what they have got or added, with low latency.
  [[nodiscard]] bool is_relayed() const noexcept { return !is_by_nccl() && rounds.is_relayed; }
};

[[nodiscard]] TeamRoute choose_route(const TeamContext& context, const TeamRequest& request,
                                     bool is_captured);
/// Why NCCL cannot carry it, whether or not it should.
[[nodiscard]] NcclObjection nccl_refusal(const TeamContext& context, const TeamRequest& request);
/// Throws Error(unsupported) if NCCL was asked for and cannot.
void require_transport(const Arguments& arguments, const TeamContext& context, const TeamRequest& request);
[[nodiscard]] std::string to_words(NcclObjection objection, const TeamContext& context,
                                   const TeamRequest& request);
[[nodiscard]] transport::ranks::TeamMeans means_of(const TeamContext& context) noexcept;

/// The plan of a request by rounds.
[[nodiscard]] transport::ranks::RoundPlan make_plan(const TeamContext& context, const TeamRequest& request,
                                                    const transport::ranks::RoundChoice& rounds);
[[nodiscard]] transport::ranks::RoundPlan make_barrier_plan(const TeamContext& context);

}  // namespace tutti::collectives
