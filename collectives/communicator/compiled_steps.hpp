// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/request.hpp"
#include "tutti/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Cuts a team's reduction by an operation that is compiled at run time into steps. The kernels of rounds
/// have no such operations, so that other steps copy the operands to the members that combine them.
namespace tutti::collectives {

/// One step of such a reduction, of some of its columns.
struct CompiledStep {
  enum class Kind : std::uint8_t {
    gather,    ///< all tensors go to all members, or the root, which combine them whole
    exchange,  ///< of all members' tensors each part goes to the member that combines it
    spread,    ///< what has been combined goes to all
  };
  Kind kind = Kind::gather;
  Request request{};
  std::size_t first = 0;  ///< column
  std::size_t columns = 1;
  /// The number of elements that each member combines, by column, then member. In a gather they are the first
  /// ones, in all other steps those behind the shares of the members before it.
  std::vector<std::vector<std::uint64_t>> shares{};

  /// Returns where a member's share begins in a column of the step, in elements.
  [[nodiscard]] std::uint64_t start_of(std::size_t column, std::size_t member) const;
};

/// Returns the steps of a reduction by a compiled operation, which its request describes, in their order.
[[nodiscard]] std::vector<CompiledStep> compiled_steps(const Request& whole, std::size_t members,
                                                       std::size_t root);

/// Describes the step in words, for instance "all_to_all, then each member combines its part of tensor 3".
[[nodiscard]] std::string in_words(const CompiledStep& step);

}  // namespace tutti::collectives
