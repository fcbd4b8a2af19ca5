// SPDX-License-Identifier: Apache-2.0
#include "transport/select/candidates.hpp"

#include "settings/environment.hpp"
#include "tutti/error.hpp"

#include <vector>

#include <fmt/format.h>

namespace tutti::transport {

Wish wish_of(const Problem& problem) {
  if (problem.transport != TransportKind::automatic) return {problem.transport, problem.transport_source};
  return {Environment::get().transport, TransportSource::environment};
}

void refuse_wish(const Problem& problem, const Wish& wish, std::string_view objection) {
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: transport is {}{}, which cannot carry this call: {}", problem.name,
                          name_of(wish.transport), in_words(wish.source), objection));
}

Plan choose(std::span<const Candidate> candidates, const Problem& problem, const Wish& wish) {
  std::vector<std::string> passed_over;
  for (const Candidate& candidate : candidates) {
    const bool is_wanted = wish.transport == candidate.kind;
    if (wish.transport != TransportKind::automatic && !is_wanted) continue;
    const bool is_binding = is_wanted && candidate.way.empty();
    // The preference is checked first: asking whether NCCL is viable loads its library.
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

}  // namespace tutti::transport
