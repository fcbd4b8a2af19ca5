// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

#include <cstdint>
#include <vector>

/// Rules for coalesced calls.
namespace tutti::test::ranks {

/// A column of lists: the tensors, all flat, or parts of them that the members have at one place of their
/// lists.
struct Column {
  DType dtype = DType::float32;
  std::int64_t count = 0;
};

/// Returns the operations that all the element types support.
[[nodiscard]] std::vector<ReduceOp> operations_for(const std::vector<Column>& columns, int members);

[[nodiscard]] Check start_broadcast_coalesced(const Group& group, const std::vector<Column>& columns,
                                              int root, std::uint64_t seed);
[[nodiscard]] Check start_reduce_coalesced(const Group& group, const ReduceOp& op,
                                           const std::vector<Column>& columns, int root, bool in_place,
                                           std::uint64_t seed);
[[nodiscard]] Check start_all_reduce_coalesced(const Group& group, const ReduceOp& op,
                                               const std::vector<Column>& columns, bool in_place,
                                               std::uint64_t seed);
// In place are parts where they belong in their wholes.
[[nodiscard]] Check start_all_gather_coalesced(const Group& group, const std::vector<Column>& columns,
                                               bool in_place, std::uint64_t seed);
[[nodiscard]] Check start_reduce_scatter_coalesced(const Group& group, const ReduceOp& op,
                                                   const std::vector<Column>& columns, bool in_place,
                                                   std::uint64_t seed);

// Rules of the contract.
void flat_lists_go_as_one_call(Group& group);
void every_operation_takes_lists(Group& group);

}  // namespace tutti::test::ranks
