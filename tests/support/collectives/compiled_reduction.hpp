// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/reduce_op.hpp"

namespace tutti::test {

/// Returns whether source text can be compiled for the devices here. If not, prints the reason once.
[[nodiscard]] bool can_compile();

/// Returns a compiled operation that subtracts each input from the result so far, so that both the first
/// input and the order matter. `reference_reduction` knows no other compiled operation.
[[nodiscard]] const ReduceOp& compiled_difference();

}  // namespace tutti::test
