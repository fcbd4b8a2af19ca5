// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/members.hpp"
#include "perf/operations/operand_memory.hpp"
#include "perf/operations/reductions.hpp"
#include "perf/operations/tensor_lists.hpp"
#include "tutti/collectives.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::perf {

/// What one row of the table measures.
struct Case {
  std::size_t bytes = 0;  ///< payload asked for; the one moved is whole elements
  /// Coalesced operations: the list; empty: `bytes` split into a few tensors.
  std::vector<TensorSpec> tensors;
  DType dtype = DType::float32;
  Members members;
  int root = 0;     ///< source of a broadcast, scatter or copy, destination of a reduce or gather: a member
  int partner = 0;  ///< destination of a copy
  int dim = 0;      ///< 0: a one-dimensional tensor; 1: the rows of a two-dimensional one are cut
  int first_element = 0;            ///< where tensors begin in memory that is aligned
  OperandMemory* memory = nullptr;  ///< where tensors lie; nullptr: where the library allocates them
  std::uint64_t seed = 1;
  CollectiveOptions options;
  ReduceKind reduce_kind = ReduceKind::sum;

  /// What a reduction is told.
  [[nodiscard]] ReduceOp operation() const { return operation_of(reduce_kind); }
};

/// Where results go.
enum class Placement : std::uint8_t {
  out_of_place,  ///< into memory of their own
  in_place,      ///< the root's part of the result is its input
  returned,      ///< into new tensors that the call allocates and returns
};

}  // namespace tutti::perf
