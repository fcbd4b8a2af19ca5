// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan.hpp"
#include "transport/plan/problem.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>

/// The table that `select` chooses by.
namespace tutti::transport {

/// One row of the table: a transport, whether it can carry the problem, and whether it is its turn.
struct Candidate {
  TransportKind kind;
  std::function<std::string()> refusal;     ///< empty: it can
  std::function<std::string()> preference;  ///< why it should wait for a better one; empty: it is its turn
  std::function<Plan()> plan;  ///< its reasons say more than that it is the first choice, or nothing
  /// One of several ways of the transport, that wishes do not name.
  std::string_view way = {};
};

/// Of one that can, or whose turn it is, whatever the problem.
[[nodiscard]] inline std::string always() {
  return {};
}

/// The transport that somebody asks for, if any, and who does.
struct Wish {
  TransportKind transport;
  TransportSource source;
};
/// The problem's own, or else the environment's.
[[nodiscard]] Wish wish_of(const Problem& problem);
/// Throws Error(unsupported).
[[noreturn]] void refuse_wish(const Problem& problem, const Wish& wish, std::string_view objection);

/// The plan of the first candidate that can and whose turn it is, or of the one that is wished for. Its
/// reasons say what was passed over, and why. Throws Error(unsupported) if what is wished for cannot carry
/// the problem.
[[nodiscard]] Plan choose(std::span<const Candidate> candidates, const Problem& problem, const Wish& wish);

}  // namespace tutti::transport
