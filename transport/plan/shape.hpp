// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::transport {

/// Summarises what a collective moves in the few numbers that algorithms are chosen by. The same on all
/// ranks.
struct CallShape {
  Collective collective = Collective::broadcast;
  std::size_t members = 0;
  std::size_t tensors = 1;  ///< of a member
  /// Bytes that a root or each member has, or of the whole that is gathered or scattered.
  std::uint64_t payload = 0;
  std::uint64_t largest_tensor = 0;  ///< bytes
  std::uint64_t kept_by_root = 0;    ///< bytes of a scatter's or gather's payload
  bool has_rows_apart = false;       ///< parts are not single rows
  /// Bytes that must stay together to be combined: the size of the largest element whose halves cannot be
  /// combined separately, as in a product of complex numbers; otherwise 1.
  std::uint64_t inseparable_bytes = 1;
  /// Sizes that do not follow from the payload if the members' parts differ in length, each of the member
  /// with most. The payload is then the whole that is gathered or summed, or the most that a member has.
  struct Counted {
    std::uint64_t largest_message = 0;
    std::uint64_t busiest_member = 0;
    std::uint64_t most_kept = 0;  ///< of an all_to_all: bytes that stay with their member
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  std::optional<Counted> counted{};

  /// Returns the bytes that the member with most to put has to put.
  [[nodiscard]] std::uint64_t largest_message() const noexcept;
  /// Returns the most bytes that some member sends or receives, if all are sent at once to those who add or
  /// keep them.
  [[nodiscard]] std::uint64_t busiest_member() const noexcept;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

}  // namespace tutti::transport
