// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>

/// Holds the table that `select` chooses by.
namespace tutti::transport {

/// A row of the table: a transport, whether it can carry the problem, and whether it is preferred.
struct Candidate {
  TransportKind kind;
  std::function<std::string()> refusal;     ///< empty: it can
  std::function<std::string()> preference;  ///< why a later candidate is better; empty: this one is preferred
  std::function<Plan()>
      plan;  ///< its reasons say why it was chosen, unless only because it is the first choice
  /// The name of one of several algorithms of the transport, which users cannot ask for.
  std::string_view way = {};
};

/// A refusal or preference that never objects.
[[nodiscard]] inline std::string always() {
  return {};
}

/// The transport that is asked for, if any, and its source.
struct Wish {
  TransportKind transport;
  TransportSource source;
};
/// Returns the problem's own wish, or else the environment's.
[[nodiscard]] Wish wish_of(const Problem& problem);
/// Throws the Error(unsupported) that says why the requested transport cannot carry the problem.
[[noreturn]] void refuse_wish(const Problem& problem, const Wish& wish, std::string_view objection);

/// Returns the plan of the first candidate that can carry the problem and is preferred, or of the one asked
/// for. Its reasons say which were passed over, and why. Throws Error(unsupported) if the transport asked for
/// cannot carry the problem.
[[nodiscard]] Plan choose(std::span<const Candidate> candidates, const Problem& problem, const Wish& wish);

}  // namespace tutti::transport
