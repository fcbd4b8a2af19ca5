// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

namespace tutti {

/// Returns whether some element of `a` and some element of `b` share a byte.
///
/// The answer is exact for all layouts met in practice, interleaved ones included: the even and the odd
/// columns of a matrix share nothing. The question is an integer equation that is hard in the worst case; a
/// search that takes too long answers true. Cost: a few comparisons if the address ranges are disjoint or
/// both layouts are dense.
[[nodiscard]] bool shares_memory(const TensorView& a, const TensorView& b);

/// Returns whether both are the same elements: equal address, element type, sizes and strides (as far as
/// strides matter).
[[nodiscard]] bool is_same_memory(const TensorView& a, const TensorView& b);

}  // namespace tutti
