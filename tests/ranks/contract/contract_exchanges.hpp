// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"
#include "ranks/contract/contract_lists.hpp"
#include "support/values/test_tensor.hpp"

#include <cstdint>
#include <vector>

/// Rules for exchanges of all with all, and for parts of unequal lengths.
namespace tutti::test::ranks {

/// Says for which members inputs and outputs overlap; the other members do not know.
enum class InPlaceOf : std::uint8_t { none, every_second, all };

/// Starts an exchange of parts of `count` elements.
[[nodiscard]] Check start_all_to_all(const Group& group, DType dtype, std::int64_t count, InPlaceOf in_place,
                                     std::uint64_t seed);
/// Starts an exchange in which `counts[i][j]` elements go from member i to member j. Only members that send
/// as many elements as they receive are in place.
[[nodiscard]] Check start_all_to_all(const Group& group, DType dtype, const std::vector<Sizes>& counts,
                                     InPlaceOf in_place, std::uint64_t seed);
/// Starts an exchange of lists, whose second, fourth, … tensors are in place for every second member.
[[nodiscard]] Check start_all_to_all_coalesced(const Group& group, const std::vector<Column>& columns,
                                               std::uint64_t seed);
// Of members' parts of so many elements.
[[nodiscard]] Check start_all_gather(const Group& group, DType dtype, const Sizes& counts, InPlaceOf in_place,
                                     std::uint64_t seed);
[[nodiscard]] Check start_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype,
                                         const Sizes& counts, InPlaceOf in_place, std::uint64_t seed);
/// Describes parts of a whole of this shape along a dimension, whose own size in the shape does not matter.
struct PartsAlong {
  Sizes shape;
  int dim = 0;
  Sizes counts;  ///< by member
  Placement placement = Placement::contiguous;

  [[nodiscard]] std::size_t along() const {
    return static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(shape.size()) : dim);
  }
  [[nodiscard]] Sizes with(std::int64_t size) const {
    Sizes sizes = shape;
    sizes[along()] = size;
    return sizes;
  }
};
[[nodiscard]] Check start_all_gather(const Group& group, DType dtype, const PartsAlong& parts,
                                     std::uint64_t seed);
[[nodiscard]] Check start_reduce_scatter(const Group& group, const ReduceOp& op, DType dtype,
                                         const PartsAlong& parts, std::uint64_t seed);
/// Returns a number up to `largest` for each member, sometimes 0; the same on all ranks.
[[nodiscard]] Sizes uneven_counts(int members, std::int64_t largest, std::uint64_t seed);
/// Returns such a number for each pair, equal in both directions if `is_symmetric`.
[[nodiscard]] std::vector<Sizes> uneven_pairs(int members, std::int64_t largest, bool is_symmetric,
                                              std::uint64_t seed);

// Rules of the contract.
void all_to_all_hands_every_part_to_its_member(Group& group);
void all_to_all_takes_lists(Group& group);
void parts_may_be_of_unequal_lengths(Group& group);
void parts_may_be_of_unequal_lengths_along_any_dimension(Group& group);
void exchanges_take_parts_of_unequal_lengths(Group& group);
void exchanges_in_place_can_be_captured(Group& group);
/// Checks a rule that is not in `contract()`: it needs three members or more, and is fast only with small
/// windows.
void members_may_be_silent_in_long_exchanges(Group& group);

}  // namespace tutti::test::ranks
