// SPDX-License-Identifier: Apache-2.0
#include "transport/nccl/team_nccl.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/rounds.hpp"
#include "transport/select/candidates.hpp"
#include "transport/select/select.hpp"
#include "tutti/error.hpp"

#include <array>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tutti::transport {

using team::TeamCapabilities;

namespace {

/// Returns why NCCL cannot carry any call like this of the team, whatever its sizes; empty if it can.
std::string_view team_nccl_refusal(const Problem& problem, const TeamCapabilities& team) {
  if (team.nccl == nullptr) return team.nccl_refusal;
  if (problem.shape.members < 2) return "there is one member";
  return problem.shape.has_rows_apart ? "rows are apart in memory" : "";
}

/// Returns why NCCL cannot carry this call; empty if it can.
std::string team_nccl_refusal_of_calls(const Problem& problem, const TeamCapabilities& team) {
  const std::string_view refusal = team_nccl_refusal(problem, team);
  return refusal.empty() ? nccl::refusal_of_calls(problem) : std::string(refusal);
}

/// Returns why NCCL should not carry a call that it could; empty if it should.
std::string team_nccl_preference(const Problem& problem, const TeamCapabilities& team) {
  if (team.spans_hosts) return {};  // it alone reaches from GPU to GPU
  if (problem.is_bounded()) return "multiprocessors are bounded, where it has not been measured";
  // Making its connections cannot be captured.
  if (problem.is_captured && !team.nccl->is_connected())
    return "the call is captured before the first one that goes by NCCL";
  const CallShape& shape = problem.shape;
  if (rounds_match_nccl(shape, team, choose_rounds(shape, team)))
    return fmt::format("it is not faster for {} bytes", shape.payload);
  return shape.payload / shape.tensors < smallest_nccl_tensor ? "the tensors are small" : "";
}

Plan plan_nccl_of(const Problem& problem, const TeamCapabilities& team) {
  Plan plan = nccl::plan_calls(problem, team.nccl);
  if (team.spans_hosts) {
    plan.reasons.emplace_back("only it connects the GPUs of different hosts");
  } else {
    plan.reasons.push_back(fmt::format("it is faster for {} bytes; by rounds it would be so: {}",
                                       problem.shape.payload,
                                       reason_for(problem.shape, team, choose_rounds(problem.shape, team))));
  }
  return plan;
}

[[noreturn]] void refuse_capture_between_hosts(const Problem& problem, std::string_view reason) {
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: the current stream is being captured, and between hosts only NCCL's "
                          "calls can be replayed; this is not one: {}",
                          problem.name, reason));
}

void require_connected(const Problem& problem, const TeamCapabilities& team) {
  if (team.nccl->is_connected()) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: the current stream is being captured before the first call that goes by NCCL: make "
                  "one such call beforehand",
                  problem.name));
}

/// Operands are their members', and kept alive by the caller.
void forget_homes(Plan& plan) {
  plan.homes.clear();
  plan.homes.shrink_to_fit();
}

}  // namespace

Plan select(const Problem& problem, const TeamCapabilities& team) {
  require_possible(problem, team);
  const std::string refusal = team_nccl_refusal_of_calls(problem, team);
  const std::array candidates{
      Candidate{TransportKind::nccl, [&] { return refusal; },
                [&] { return refusal.empty() ? team_nccl_preference(problem, team) : refusal; },
                [&] { return plan_nccl_of(problem, team); }},
      Candidate{team.windows, always, always, [&] { return lower_rounds(problem, team); }},
  };
  Wish wish{problem.transport, problem.transport_source};
  const bool moves = !problem.flows.empty() || !problem.reductions.empty();
  // Rounds are what there is for a single member, and windows have been made as was asked.
  if (wish.transport != TransportKind::nccl || problem.shape.members < 2 || !moves)
    wish.transport = TransportKind::automatic;
  Plan plan = choose(candidates, problem, wish);
  forget_homes(plan);
  if (!problem.is_captured) return plan;
  if (const team::RoundPlan* const rounds = rounds_of(plan); rounds == nullptr) {
    require_connected(problem, team);
  } else if (team.spans_hosts && rounds->round_count > 0) {
    refuse_capture_between_hosts(problem, plan.reasons.back());
  }
  return plan;
}

void require_possible(const Problem& problem, const TeamCapabilities& team) {
  const std::string_view refusal = team_nccl_refusal(problem, team);
  const bool moves =
      moves_tensors(problem.collective) && problem.shape.members > 1 && problem.shape.tensors > 0;
  const bool is_wanted = problem.transport == TransportKind::nccl && moves;
  if (is_wanted && !refusal.empty())
    refuse_wish(problem, {problem.transport, problem.transport_source}, refusal);
  if (!problem.is_captured || !moves) return;
  if (team.spans_hosts && !refusal.empty())
    refuse_capture_between_hosts(problem, fmt::format("nccl not taken: {}", refusal));
  // Properties that are known only after the others rely on the call must not make it impossible.
  if ((is_wanted || team.spans_hosts) && problem.is_outline) require_connected(problem, team);
}

MessageRoute select(const MessageShape& messages, const TeamCapabilities& team,
                    TransportKind wished) noexcept {
  if (messages.far.count == 0) return MessageRoute::by_copies;
  if (wished == TransportKind::nccl) return MessageRoute::by_nccl;
  const std::uint64_t largest = messages.far.largest;
  if (largest > team::direct_messages_from(team)) return MessageRoute::direct;
  return team.layout.goes_in_lines(largest) ? MessageRoute::in_lines : MessageRoute::through_slots;
}

bool may_be_a_round(const MessageShape& messages, const TeamCapabilities& team, bool avoids_copies) noexcept {
  // Windows in memory of devices are the sign that these reach one another. Copies hold no multiprocessors.
  return messages.is_among_all && (avoids_copies || messages.inside.largest <= inside_rounds_to) &&
         team.windows == TransportKind::p2p && team.most_multiprocessors == backend::all_multiprocessors;
}

Plan plan_in_a_round(const Problem& problem, const TeamCapabilities& team) {
  Plan plan = lower_rounds(problem, team);
  forget_homes(plan);
  return plan;
}

bool are_better_than_copies(const team::RoundPlan& rounds) noexcept {
  // Through slots every byte is copied twice, and each round fills one.
  return rounds.protocol != team::Protocol::slots || rounds.round_count == 1;
}

Plan plan_of(MessageRoute route, const TeamCapabilities& team) {
  const auto plan = [](TransportKind transport, std::string_view algorithm) {
    Plan result;
    result.summary = {.transport = std::string(name_of(transport)), .algorithm = std::string(algorithm)};
    return result;
  };
  switch (route) {
    case MessageRoute::by_copies:
      return plan(TransportKind::p2p, "copy engines");
    case MessageRoute::by_nccl:
      return plan(TransportKind::nccl, "send and receive");
    case MessageRoute::direct:
      return plan(team.windows, "messages, large ones direct");
    case MessageRoute::in_lines:
      return plan(team.windows, "messages in lines");
    case MessageRoute::through_slots:
      break;
  }
  return plan(team.windows, "messages through slots");
}

}  // namespace tutti::transport
