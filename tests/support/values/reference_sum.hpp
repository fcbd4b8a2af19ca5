// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/reduce_op.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::test {

/// The sum the contract promises, bit for bit: ascending input order; 8- and 16-bit floats in float32,
/// rounded once; float32, float64 and complex in themselves; integers modulo 2^bits; bool by logical or; NaN
/// canonical.
[[nodiscard]] HostArray reference_sum(std::span<const HostArray> inputs);
/// The same for any operation that the element type has, as `ReduceKind` says it; of those that are compiled,
/// for `compiled_difference` alone.
[[nodiscard]] HostArray reference_reduction(std::span<const HostArray> inputs, const ReduceOp& operation);
/// One of each kind that the element type has, and factors for each of so many inputs.
[[nodiscard]] std::vector<ReduceOp> operations_of(DType dtype, std::size_t inputs);
/// Those that all these element types have.
[[nodiscard]] std::vector<ReduceOp> operations_of(std::span<const DType> dtypes, std::size_t inputs);

/// The value of a float of 8 or 16 bits, from the definition of its format.
[[nodiscard]] float decode_small_float(DType dtype, std::uint32_t bits);
/// `value` rounded to nearest, ties to even, by searching all values of the format.
[[nodiscard]] std::uint32_t encode_small_float(DType dtype, float value);

}  // namespace tutti::test
