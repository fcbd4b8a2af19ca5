// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/reduce_op.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::test {

/// Returns the sum that the contract promises, bit for bit: ascending input order; 8- and 16-bit floats in
/// float32, rounded once; float32, float64 and complex in themselves; integers modulo 2^bits; bool by logical
/// or; NaN canonical.
[[nodiscard]] HostArray reference_sum(std::span<const HostArray> inputs);
/// Does the same for any operation that the element type supports, as `ReduceKind` defines it; of compiled
/// ones, only for `compiled_difference`.
[[nodiscard]] HostArray reference_reduction(std::span<const HostArray> inputs, const ReduceOp& operation);
/// Returns one operation of each kind that the element type supports, with factors for so many inputs.
[[nodiscard]] std::vector<ReduceOp> operations_of(DType dtype, std::size_t inputs);
/// Returns the operations that all these element types support.
[[nodiscard]] std::vector<ReduceOp> operations_of(std::span<const DType> dtypes, std::size_t inputs);

/// Decodes a float of 8 or 16 bits by the definition of its format.
[[nodiscard]] float decode_small_float(DType dtype, std::uint32_t bits);
/// Rounds `value` to nearest, ties to even, by searching all values of the format.
[[nodiscard]] std::uint32_t encode_small_float(DType dtype, float value);

}  // namespace tutti::test
