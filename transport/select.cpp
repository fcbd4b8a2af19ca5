// SPDX-License-Identifier: Apache-2.0
#include "transport/select.hpp"

#include "environment.hpp"
#include "transport/connectivity.hpp"
#include "transport/lowering.hpp"
#include "transport/nccl.hpp"
#include "transport/signals.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <set>

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
std::vector<int> team_of(const Problem& problem) {
  std::set<int> devices;
  for (const LaneId home : problem.homes) {
    if (home != host_lane) devices.insert(problem.lane_devices[home]);
  }
  return {devices.begin(), devices.end()};
}

class P2p {
 public:
  P2p(Runtime& runtime, const Problem& problem)
      : connectivity_(runtime.extension<Connectivity>()), problem_(problem), team_(team_of(problem)) {}

  [[nodiscard]] std::string refusal() {
    if (team_.size() < 2) return {};
    std::string reasons;
    for (const int device : team_) {
      for (const int peer : team_) {
        if (device == peer) continue;
        if (direct(device, peer)) return {};
        if (reasons.empty()) reasons = connectivity_.reason(device, peer);
      }
    }
    return fmt::format("no two of the {} devices can access each other's memory ({})", team_.size(), reasons);
  }

  [[nodiscard]] Plan plan() {
    return lower(
        problem_, [this](int device, int peer) { return direct(device, peer); }, TransportKind::p2p);
  }

  /// A pair was passed over because it could not be tested yet.
  [[nodiscard]] bool found_untested() const noexcept { return found_untested_; }

  /// Pairs that are bridged through pinned memory.
  [[nodiscard]] std::size_t bridged_pairs() {
    std::size_t count = 0;
    for (const int device : team_) {
      for (const int peer : team_)
        if (device < peer && !direct(device, peer)) ++count;
    }
    return count;
  }

 private:
  [[nodiscard]] bool direct(int device, int peer) {
    if (device == peer || connectivity_.direct(device, peer, team_)) return true;
    found_untested_ = found_untested_ || connectivity_.link(device, peer).state == PeerState::untested;
    return false;
  }

  Connectivity& connectivity_;
  const Problem& problem_;
  std::vector<int> team_;
  bool found_untested_ = false;
};

/// One row of the table: a transport, whether it can carry the problem, and whether it is its turn.
struct Candidate {
  TransportKind kind;
  std::function<std::string()> refusal;     ///< empty: it can
  std::function<std::string()> preference;  ///< why it should wait for a better one; empty: it is its turn
  std::function<Plan()> plan;
};

/// NCCL comes first where it has been measured to be faster, and is out of the question elsewhere.
std::string nccl_preference(Runtime& runtime, const Problem& problem) {
  if (std::string absent = nccl::absence(runtime); !absent.empty()) return absent;
  if (traits_of(problem.collective).has_own_sizes) {
    return "copy engines and kernels are faster for it";
  }
  // NCCL takes one operation per tensor: what counts is how large they are.
  const std::uint64_t bytes = problem.bytes() / (problem.flows.size() + problem.reductions.size());
  const bool is_sum = !problem.reductions.empty();
  const auto from = nccl_from(problem.mode, is_sum, team_of(problem).size());
  if (!from) return "between two devices kernels are faster";
  if (bytes >= *from) return {};
  return fmt::format("{} bytes per tensor are less than the {} from which it is faster", bytes, *from);
}

struct Wish {
  TransportKind transport;
  TransportSource source;
};
Wish wish_of(const Problem& problem) {
  if (problem.transport != TransportKind::automatic) return {problem.transport, TransportSource::options};
  return {Environment::get().transport, TransportSource::environment};
}

}  // namespace

Plan select(Runtime& runtime, const Problem& problem) {
  P2p p2p(runtime, problem);
  const auto always = [] { return std::string{}; };
  const std::array candidates{
      Candidate{TransportKind::nccl, [&] { return nccl::refusal(runtime, problem); },
                [&] { return nccl_preference(runtime, problem); },
                [&] { return nccl::lower(runtime, problem); }},
      Candidate{TransportKind::p2p, [&] { return p2p.refusal(); }, always, [&] { return p2p.plan(); }},
      Candidate{TransportKind::staged, always, always,
                [&] { return lower(problem, std::equal_to<int>{}, TransportKind::staged); }},
  };

  const auto [wanted, source] = wish_of(problem);
  std::vector<std::string> reasons;
  for (const Candidate& candidate : candidates) {
    const bool is_wanted = wanted == candidate.kind;
    if (wanted != TransportKind::automatic && !is_wanted) continue;
    // Whose turn it is comes first: asking whether NCCL is viable loads its library.
    std::string objection = is_wanted ? std::string{} : candidate.preference();
    if (objection.empty()) objection = candidate.refusal();
    if (!objection.empty()) {
      if (is_wanted) {
        throw Error(ErrorCode::unsupported,
                    fmt::format("{}: transport is {}{}, which cannot carry this call: {}",
                                name_of(problem.collective), name_of(wanted), in_words(source), objection));
      }
      reasons.push_back(fmt::format("{} not taken: {}", name_of(candidate.kind), objection));
      continue;
    }
    Plan plan = candidate.plan();
    reasons.insert(reasons.begin(),
                   is_wanted
                       ? fmt::format("{} was asked for{}", name_of(candidate.kind), in_words(source))
                       : fmt::format("{} is the first choice that can carry it", name_of(candidate.kind)));
    if (candidate.kind == TransportKind::p2p && p2p.bridged_pairs() > 0) {
      reasons.push_back(fmt::format("{} pairs without direct access are bridged through pinned host memory",
                                    p2p.bridged_pairs()));
    }
    if (problem.mode == LaunchMode::eager) {
      backend::Backend& backend = runtime.backend();
      plan.signals =
          choose_signals(plan, Environment::get().signals, backend.signal_support(),
                         [&](int a, int b) { return backend.link(a, b).kind == backend::LinkKind::nvlink; });
    }
    plan.reasons = std::move(reasons);
    plan.is_provisional = p2p.found_untested();
    return plan;
  }
  throw Error(ErrorCode::internal, "select: no transport left, though staged carries everything");
}

}  // namespace tutti::transport
