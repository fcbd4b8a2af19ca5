// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_route.hpp"

#include "collectives/team_problem.hpp"
#include "transport/tuning.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string_view>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

using transport::ranks::Protocol;
using transport::ranks::RoundChoice;
using transport::ranks::RoundPlan;

std::string_view adjective_of(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::slots:
      return "";
    case Protocol::direct:
      return "direct ";
    case Protocol::low_latency:
      return "low-latency ";
  }
  return "";
}

RoundPlan with_summary(RoundPlan plan, const TeamContext& context) {
  plan.summary.transport = plan.round_count == 0 ? "none" : name_of(context.team.windows().transport());
  plan.summary.algorithm = fmt::format("{} {}{}", plan.round_count, adjective_of(plan.protocol),
                                       plan.round_count == 1 ? "round" : "rounds");
  return plan;
}

transport::RanksTuning tuning_of(const TeamContext& context, const RoundChoice& rounds) noexcept {
  transport::RanksTuning tuning = transport::ranks_tuning_of(context.runtime.backend().kind());
  tuning.message_bytes = message_bytes(means_of(context));
  if (rounds.protocol == Protocol::slots) return tuning;
  // There are no messages to cut. Directly, no member may write what others read.
  tuning.message_bytes = std::numeric_limits<std::uint64_t>::max() / 2;
  const bool shares_sums = rounds.protocol == Protocol::direct || rounds.is_relayed;
  tuning.shared_sums_from = shares_sums ? 0 : tuning.message_bytes;
  return tuning;
}

/// Why NCCL cannot or should not.
NcclObjection nccl_objection(const TeamContext& context, const TeamRequest& request,
                             const RoundChoice& rounds, bool is_captured) {
  const NcclObjection refusal = nccl_refusal(context, request);
  if (refusal != NcclObjection::none || context.team.settings().transport == TransportKind::nccl)
    return refusal;
  if (context.team.spans_hosts()) return NcclObjection::none;  // it alone reaches from GPU to GPU
  // Making its connections cannot be captured.
  if (is_captured && !context.nccl->is_connected()) return NcclObjection::not_connected;
  const transport::ranks::CallShape shape = request.shape(context.team.member_count());
  if (rounds_match_nccl(shape, means_of(context), rounds)) return NcclObjection::not_faster;
  if (shape.payload / shape.tensors < transport::ranks_nccl_tensor) return NcclObjection::small_tensors;
  return NcclObjection::none;
}

}  // namespace

transport::ranks::TeamMeans means_of(const TeamContext& context) noexcept {
  const transport::ranks::Team& team = context.team;
  return {.backend = context.runtime.backend().kind(),
          .layout = team.windows().layout(),
          .most_given = team.registrations() == nullptr ? 0 : transport::ranks::Registrations::most_given,
          .most_members_of_a_rank = team.most_members_of_a_rank()};
}

TeamRoute choose_route(const TeamContext& context, const TeamRequest& request, bool is_captured) {
  TeamRoute route;
  if (request.moves())
    route.rounds = choose_rounds(request.shape(context.team.member_count()), means_of(context));
  route.nccl = nccl_objection(context, request, route.rounds, is_captured);
  return route;
}

NcclObjection nccl_refusal(const TeamContext& context, const TeamRequest& request) {
  if (context.nccl == nullptr) return NcclObjection::is_absent;
  if (!request.moves()) return NcclObjection::nothing_moves;
  if (context.team.member_count() < 2) return NcclObjection::one_member;
  if (traits_of(request.collective).has_own_sizes && request.geometry.rows > 1)
    return NcclObjection::rows_apart;
  if (!traits_of(request.collective).is_sum) return NcclObjection::none;
  if (context.team.settings().determinism == Determinism::bitwise) return NcclObjection::own_order;
  const auto is_added = [&](const TeamColumn& column) { return context.nccl->adds(column.dtype); };
  return std::ranges::all_of(request.columns, is_added) ? NcclObjection::none : NcclObjection::dtype;
}

void require_transport(const Arguments& arguments, const TeamContext& context, const TeamRequest& request) {
  if (context.team.settings().transport != TransportKind::nccl) return;
  if (context.team.member_count() < 2 || !request.moves()) return;
  if (const NcclObjection refusal = nccl_refusal(context, request); refusal != NcclObjection::none) {
    arguments.unsupported("transport is nccl{}, which cannot carry this call: {}",
                          in_words(context.team.settings().transport_source),
                          to_words(refusal, context, request));
  }
}

std::string to_words(NcclObjection objection, const TeamContext& context, const TeamRequest& request) {
  switch (objection) {
    case NcclObjection::none:
      return {};
    case NcclObjection::is_absent:
      return context.nccl_refusal;
    case NcclObjection::nothing_moves:
      return "nothing is to be moved";
    case NcclObjection::one_member:
      return "there is one member";
    case NcclObjection::rows_apart:
      return "rows are apart in memory";
    case NcclObjection::own_order:
      return "it adds in an order of its own";
    case NcclObjection::dtype:
      return "it does not add all of the element types";
    case NcclObjection::not_faster:
      return fmt::format("it is not faster for {} bytes", request.shape(context.team.member_count()).payload);
    case NcclObjection::small_tensors:
      return "the tensors are small";
    case NcclObjection::not_connected:
      return "the call is captured before the first one that goes by NCCL";
  }
  return {};
}

RoundPlan make_plan(const TeamContext& context, const TeamRequest& request, const RoundChoice& rounds) {
  const transport::ranks::Team& team = context.team;
  const transport::RanksTuning tuning = tuning_of(context, rounds);
  const TeamProblem problem = problem_of(request, team.member_count(), rounds.is_relayed, tuning);
  return with_summary(transport::ranks::plan_rounds(problem.work(), team.member_count(), team.first_local(),
                                                    context.devices.size(),
                                                    {.message_bytes = tuning.message_bytes,
                                                     .protocol = rounds.protocol,
                                                     .layout = team.windows().layout()}),
                      context);
}

RoundPlan make_barrier_plan(const TeamContext& context) {
  return with_summary(transport::ranks::plan_barrier(context.team.member_count(), context.team.first_local(),
                                                     context.devices.size()),
                      context);
}

}  // namespace tutti::collectives
