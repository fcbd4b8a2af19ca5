// SPDX-License-Identifier: Apache-2.0
#include "transport/select/select.hpp"

#include "settings/environment.hpp"
#include "transport/nccl/nccl.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/probes/connectivity.hpp"
#include "transport/rounds/process_rounds.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/select/candidates.hpp"
#include "transport/steps/lowering.hpp"
#include "transport/steps/signals.hpp"
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
      : connectivity_(runtime.part<Connectivity>()), problem_(problem), devices_(devices_of(problem)) {}

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

  /// Returns true if the device reaches the other one's memory; also for itself.
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

/// Returns why nothing can carry the problem with its limit on multiprocessors; empty if something can.
std::string refusal_of_bound(const Problem& problem) {
  if (!problem.is_bounded()) return {};
  if (problem.reduce_kind == ReduceKind::compiled && !problem.reductions.empty())
    return "kernels that are compiled at run time cannot be limited";
  if (problem.most_multiprocessors == 0 && !problem.reductions.empty()) return "sums are made by kernels";
  return {};
}

/// Returns why NCCL in one process refuses a bound: all calls share its communicators.
std::string nccl_refusal_of_bound(const Problem& problem) {
  return problem.is_bounded() ? "its multiprocessors cannot be limited" : "";
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

/// Chooses how eager launches of a plan of steps order its lanes.
void choose_order(Runtime& runtime, Plan& plan) {
  backend::Backend& backend = runtime.backend();
  plan.signals =
      choose_signals(plan, Environment::get().signals, backend.signal_support(),
                     [&](int a, int b) { return backend.link(a, b).kind == backend::LinkKind::nvlink; });
}

/// Returns the candidates for a process's problem except rounds; the arguments must outlive them.
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

/// Returns the plan that is used when rounds cannot be launched.
Plan select_otherwise(Runtime& runtime, const Problem& problem) {
  Problem of_own_results = problem;
  of_own_results.ready = of_own_results.homes;
  P2p p2p(runtime, of_own_results);
  Plan plan = choose(steps_for(runtime, of_own_results, p2p), of_own_results, wish_of(of_own_results));
  plan.reasons.emplace_back("rounds cannot be launched now, on these streams or of this memory");
  choose_order(runtime, plan);
  return plan;
}

}  // namespace

Plan select(Runtime& runtime, const Problem& problem) {
  if (const std::string refusal = refusal_of_bound(problem); !refusal.empty()) {
    throw Error(ErrorCode::unsupported, fmt::format("{}: options.multiprocessors is {}, but {}", problem.name,
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

}  // namespace tutti::transport
