// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/peers/nccl_library.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <optional>

/// What NCCL calls the element types and the reductions.
namespace tutti::perf {

/// What NCCL sums: the type, and how many of them make an element.
struct SummedType {
  ncclDataType_t type;
  std::size_t per_element;
};
/// Nothing where it sums no such elements.
[[nodiscard]] std::optional<SummedType> summed_type(DType dtype);

/// Nothing where NCCL has none, or one that is made for each communicator.
[[nodiscard]] std::optional<ncclRedOp_t> own_operation_of(ReduceKind kind);

/// What inputs are multiplied with, as one of their elements.
[[nodiscard]] std::array<std::byte, sizeof(double)> factor_of(ncclDataType_t type);

}  // namespace tutti::perf
