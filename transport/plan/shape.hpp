// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collective.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::transport {

/// What a collective moves, in the few numbers that choices between ways go by. The same on all ranks.
struct CallShape {
  Collective collective = Collective::broadcast;  ///< that it travels as; lists have more `tensors`
  std::size_t members = 0;
  std::size_t tensors = 1;  ///< of a member
  /// Bytes of what a root or each member has, or of the whole that is gathered or scattered.
  std::uint64_t payload = 0;
  std::uint64_t largest_tensor = 0;  ///< bytes
  std::uint64_t kept_by_root = 0;    ///< bytes of a scatter's or gather's payload
  bool has_rows_apart = false;       ///< parts are not single rows
  /// Bytes that what combines elements must have together: of the largest element whose halves are not
  /// combined each for itself, as those of a product of complex numbers; or 1.
  std::uint64_t inseparable_bytes = 1;
  /// Where the parts of members differ in length, what does not follow from the payload, of the members with
  /// most of it. Then the payload is the whole that is gathered or summed, or the most that a member has.
  struct Counted {
    std::uint64_t largest_message = 0;
    std::uint64_t busiest_member = 0;
    std::uint64_t most_kept = 0;  ///< of an all_to_all: bytes that stay with their member
    friend bool operator==(const Counted&, const Counted&) = default;
  };
  std::optional<Counted> counted{};

  /// Bytes that the member with most to put has to put.
  [[nodiscard]] std::uint64_t largest_message() const noexcept;
  /// Bytes that some member has to send or to receive, if all are sent at once to those who add or keep them.
  [[nodiscard]] std::uint64_t busiest_member() const noexcept;
  friend bool operator==(const CallShape&, const CallShape&) = default;
};

}  // namespace tutti::transport
