// SPDX-License-Identifier: Apache-2.0
#include "transport/select.hpp"

#include "environment.hpp"
#include "transport/connectivity.hpp"
#include "transport/nccl/nccl.hpp"
#include "transport/nccl/team_nccl.hpp"
#include "transport/rounds/process_rounds.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/rounds.hpp"
#include "transport/steps/lowering.hpp"
#include "transport/steps/signals.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti::transport {

using team::TeamMeans;

namespace {

Plan lower(const Problem& problem, const Reach& reach, TransportKind kind) {
  PlanBuilder builder(problem);
  std::string algorithm =
      problem.reductions.empty() ? lower_flows(builder, reach) : lower_reductions(builder, reach);
  return builder.finish(std::string(name_of(kind)), std::move(algorithm));
}

/// The devices whose memory a problem touches, ascending.
std::vector<int> devices_of(const Problem& problem) {
  std::set<int> devices;
  for (const LaneId home : problem.homes) {
    if (home != host_lane) devices.insert(problem.lane_devices[home]);
  }
  return {devices.begin(), devices.end()};
}

class P2p {
 public:
  P2p(Runtime& runtime, const Problem& problem)
      : connectivity_(runtime.extension<Connectivity>()), problem_(problem), devices_(devices_of(problem)) {}

  [[nodiscard]] std::string refusal() {
    if (devices_.size() < 2) return {};
    std::string reasons;
    for (const int device : devices_) {
      for (const int peer : devices_) {
        if (device == peer) continue;
        if (direct(device, peer)) return {};
        if (reasons.empty()) reasons = connectivity_.reason(device, peer);
      }
    }
    return fmt::format("no two of the {} devices can access each other's memory ({})", devices_.size(),
                       reasons);
  }

  [[nodiscard]] Plan plan() {
    return lower(
        problem_, [this](int device, int peer) { return direct(device, peer); }, TransportKind::p2p);
  }

  /// Whether the device reaches the other one's memory; itself, too.
  [[nodiscard]] bool direct(int device, int peer) {
    if (device == peer || connectivity_.direct(device, peer, devices_)) return true;
    found_untested_ = found_untested_ || connectivity_.link(device, peer).state == PeerState::untested;
    return false;
  }

  /// A pair was passed over because it could not be tested yet.
  [[nodiscard]] bool found_untested() const noexcept { return found_untested_; }

  /// Pairs that are bridged through pinned memory.
  [[nodiscard]] std::size_t bridged_pairs() {
    std::size_t count = 0;
    for (const int device : devices_) {
      for (const int peer : devices_)
        if (device < peer && !direct(device, peer)) ++count;
    }
    return count;
  }

 private:
  Connectivity& connectivity_;
  const Problem& problem_;
  std::vector<int> devices_;
  bool found_untested_ = false;
};

/// One row of the table: a transport, whether it can carry the problem, and whether it is its turn.
struct Candidate {
  TransportKind kind;
  std::function<std::string()> refusal;     ///< empty: it can
  std::function<std::string()> preference;  ///< why it should wait for a better one; empty: it is its turn
  std::function<Plan()> plan;  ///< its reasons say more than that it is the first choice, or nothing
  /// One of several ways of the transport, that wishes do not name.
  std::string_view way = {};
};

std::string always() {
  return {};
}

/// Why nothing can carry the problem with the multiprocessors it may have; empty: something can.
std::string refusal_of_bound(const Problem& problem) {
  if (!problem.is_bounded()) return {};
  if (problem.reduce_kind == ReduceKind::compiled && !problem.reductions.empty())
    return "kernels that are compiled at run time take as many as there are";
  if (problem.most_multiprocessors == 0 && !problem.reductions.empty()) return "sums are made by kernels";
  return {};
}

/// Of NCCL in one process, whose communicators calls share.
std::string nccl_refusal_of_bound(const Problem& problem) {
  return problem.is_bounded() ? "it takes as many multiprocessors as it likes" : "";
}

/// NCCL comes before steps where it has been measured to be faster, and is out of the question elsewhere.
std::string nccl_preference(Runtime& runtime, const Problem& problem) {
  if (std::string refusal = nccl_refusal_of_bound(problem); !refusal.empty()) return refusal;
  if (std::string absent = nccl::absence(runtime); !absent.empty()) return absent;
  if (traits_of(problem.collective).has_own_sizes) {
    return "copy engines and kernels are faster for it";
  }
  // NCCL takes one operation per tensor: what counts is how large they are.
  const std::uint64_t bytes = problem.bytes() / (problem.flows.size() + problem.reductions.size());
  const bool is_sum = !problem.reductions.empty();
  const auto from = nccl_from(problem.mode, is_sum, devices_of(problem).size());
  if (!from) return "between two devices kernels are faster";
  if (bytes >= *from) return {};
  return fmt::format("{} bytes per tensor are less than the {} from which it is faster", bytes, *from);
}

/// Why NCCL cannot carry any call like this of the team, whatever its sizes.
std::string_view team_nccl_refusal(const Problem& problem, const TeamMeans& team) {
  if (team.nccl == nullptr) return team.nccl_refusal;
  if (problem.shape.members < 2) return "there is one member";
  return problem.shape.has_rows_apart ? "rows are apart in memory" : "";
}

/// Why it cannot carry this one.
std::string team_nccl_refusal_of_calls(const Problem& problem, const TeamMeans& team) {
  const std::string_view refusal = team_nccl_refusal(problem, team);
  return refusal.empty() ? nccl::refusal_of_calls(problem) : std::string(refusal);
}

/// Why one that can should not.
std::string team_nccl_preference(const Problem& problem, const TeamMeans& team) {
  if (team.spans_hosts) return {};  // it alone reaches from GPU to GPU
  if (problem.is_bounded()) return nccl_refusal_of_bound(problem);
  // Making its connections cannot be captured.
  if (problem.is_captured && !team.nccl->is_connected())
    return "the call is captured before the first one that goes by NCCL";
  const CallShape& shape = problem.shape;
  if (rounds_match_nccl(shape, team, choose_rounds(shape, team)))
    return fmt::format("it is not faster for {} bytes", shape.payload);
  return shape.payload / shape.tensors < smallest_nccl_tensor ? "the tensors are small" : "";
}

Plan plan_nccl_of(const Problem& problem, const TeamMeans& team) {
  Plan plan = nccl::plan_calls(problem, team.nccl);
  if (team.spans_hosts) {
    plan.reasons.emplace_back("it is what reaches from the GPUs of one host to those of another");
  } else {
    plan.reasons.push_back(fmt::format("it is faster for {} bytes; by rounds it would be so: {}",
                                       problem.shape.payload,
                                       reason_for(problem.shape, team, choose_rounds(problem.shape, team))));
  }
  return plan;
}

struct Wish {
  TransportKind transport;
  TransportSource source;
};
Wish wish_of(const Problem& problem) {
  if (problem.transport != TransportKind::automatic) return {problem.transport, problem.transport_source};
  return {Environment::get().transport, TransportSource::environment};
}

[[noreturn]] void refuse_wish(const Problem& problem, const Wish& wish, std::string_view objection) {
  throw Error(ErrorCode::unsupported, fmt::format("{}: transport is {}{}, which cannot carry this call: {}",
                                                  name_of(problem.collective), name_of(wish.transport),
                                                  in_words(wish.source), objection));
}

[[noreturn]] void refuse_capture_between_hosts(const Problem& problem, std::string_view reason) {
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: the current stream is being captured, and of what goes between hosts only NCCL's "
                  "calls can be replayed; this is none: {}",
                  name_of(problem.collective), reason));
}

void require_connected(const Problem& problem, const TeamMeans& team) {
  if (team.nccl->is_connected()) return;
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: the current stream is being captured before the first call that goes by NCCL: make "
                  "one such call beforehand",
                  name_of(problem.collective)));
}

/// The first candidate that can and whose turn it is, or the one that is wished for.
Plan choose(std::span<const Candidate> candidates, const Problem& problem, const Wish& wish) {
  std::vector<std::string> passed_over;
  for (const Candidate& candidate : candidates) {
    const bool is_wanted = wish.transport == candidate.kind;
    if (wish.transport != TransportKind::automatic && !is_wanted) continue;
    const bool is_binding = is_wanted && candidate.way.empty();
    // Whose turn it is comes first: asking whether NCCL is viable loads its library.
    std::string objection = is_binding ? std::string{} : candidate.preference();
    if (objection.empty()) objection = candidate.refusal();
    if (!objection.empty()) {
      if (is_binding) refuse_wish(problem, wish, objection);
      passed_over.push_back(fmt::format(
          "{} not taken: {}", candidate.way.empty() ? name_of(candidate.kind) : candidate.way, objection));
      continue;
    }
    Plan plan = candidate.plan();
    if (is_wanted) {
      plan.reasons = {fmt::format("{} was asked for{}", name_of(candidate.kind), in_words(wish.source))};
    } else if (plan.reasons.empty()) {
      plan.reasons = {fmt::format("{} is the first choice that can carry it", name_of(candidate.kind))};
    }
    plan.reasons.insert(plan.reasons.end(), passed_over.begin(), passed_over.end());
    return plan;
  }
  throw Error(ErrorCode::internal, "select: no transport left, though the last one carries everything");
}

/// How eager launches of a plan of steps order its lanes.
void choose_order(Runtime& runtime, Plan& plan) {
  backend::Backend& backend = runtime.backend();
  plan.signals =
      choose_signals(plan, Environment::get().signals, backend.signal_support(),
                     [&](int a, int b) { return backend.link(a, b).kind == backend::LinkKind::nvlink; });
}

/// What carries a process's problem but for rounds; the arguments outlive it.
std::array<Candidate, 3> steps_for(Runtime& runtime, const Problem& problem, P2p& p2p) {
  return {Candidate{TransportKind::nccl,
                    [&] {
                      std::string refusal = nccl_refusal_of_bound(problem);
                      return refusal.empty() ? nccl::refusal(runtime, problem) : refusal;
                    },
                    [&] { return nccl_preference(runtime, problem); },
                    [&] { return nccl::lower(runtime, problem); }},
          Candidate{TransportKind::p2p, [&] { return p2p.refusal(); }, always, [&] { return p2p.plan(); }},
          Candidate{TransportKind::staged, always, always,
                    [&] { return lower(problem, std::equal_to<int>{}, TransportKind::staged); }}};
}

/// What is taken where rounds cannot be launched.
Plan select_otherwise(Runtime& runtime, const Problem& problem) {
  Problem of_own_results = problem;
  of_own_results.ready = of_own_results.homes;
  P2p p2p(runtime, of_own_results);
  Plan plan = choose(steps_for(runtime, of_own_results, p2p), of_own_results, wish_of(of_own_results));
  plan.reasons.emplace_back("rounds cannot be launched now, on these streams or of this memory");
  choose_order(runtime, plan);
  return plan;
}

Plan select_of_process(Runtime& runtime, const Problem& problem) {
  if (const std::string refusal = refusal_of_bound(problem); !refusal.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: options.multiprocessors is {}, but {}", name_of(problem.collective),
                            problem.most_multiprocessors, refusal));
  }
  P2p p2p(runtime, problem);
  team::ProcessRounds rounds(runtime, problem);
  const Wish wish = wish_of(problem);
  std::vector<Candidate> candidates;
  if (rounds.are_in_question() && problem.most_multiprocessors != 0) {
    candidates.push_back(
        {TransportKind::p2p,
         [&] { return rounds.refusal([&](int device, int peer) { return p2p.direct(device, peer); }); },
         [&] { return rounds.preference(); }, [&] { return rounds.plan(select_otherwise(runtime, problem)); },
         "rounds"});
  }
  std::ranges::move(steps_for(runtime, problem, p2p), std::back_inserter(candidates));
  Plan plan = choose(candidates, problem, wish);
  if (plan.summary.transport == name_of(TransportKind::p2p) && p2p.bridged_pairs() > 0) {
    plan.reasons.push_back(fmt::format(
        "{} pairs without direct access are bridged through pinned host memory", p2p.bridged_pairs()));
  }
  if (problem.reduce_kind == ReduceKind::compiled)
    plan.reasons.emplace_back("what is compiled at run time combines: a kernel for each tensor of a sum");
  if (problem.mode == LaunchMode::eager && !problem.is_captured && !plan.process_rounds)
    choose_order(runtime, plan);
  plan.is_provisional = p2p.found_untested() || rounds.are_refused_for_now();
  return plan;
}

Plan select_of_team(const Problem& problem, const TeamMeans& team) {
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
  // Operands are their members', and kept alive by the caller.
  plan.homes.clear();
  plan.homes.shrink_to_fit();
  if (!problem.is_captured) return plan;
  if (const team::RoundPlan* const rounds = rounds_of(plan); rounds == nullptr) {
    require_connected(problem, team);
  } else if (team.spans_hosts && rounds->round_count > 0) {
    refuse_capture_between_hosts(problem, plan.reasons.back());
  }
  return plan;
}

}  // namespace

Plan select(Runtime& runtime, const Problem& problem, const TeamMeans* team) {
  return team == nullptr ? select_of_process(runtime, problem) : select_of_team(problem, *team);
}

void require_possible(const Problem& problem, const TeamMeans& team) {
  const std::string_view refusal = team_nccl_refusal(problem, team);
  const bool moves =
      moves_tensors(problem.collective) && problem.shape.members > 1 && problem.shape.tensors > 0;
  const bool is_wanted = problem.transport == TransportKind::nccl && moves;
  if (is_wanted && !refusal.empty())
    refuse_wish(problem, {problem.transport, problem.transport_source}, refusal);
  if (!problem.is_captured || !moves) return;
  if (team.spans_hosts && !refusal.empty())
    refuse_capture_between_hosts(problem, fmt::format("nccl not taken: {}", refusal));
  // What is known later than the others rely on the call must not be what makes it impossible.
  if ((is_wanted || team.spans_hosts) && problem.is_outline) require_connected(problem, team);
}

}  // namespace tutti::transport
