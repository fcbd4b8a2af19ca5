// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/reduce_op.hpp"

namespace tutti::test {

/// Whether source text can be compiled for the devices here. If not, says why, once.
[[nodiscard]] bool can_compile();

/// An operation that is compiled: each input is subtracted from what has been combined before it, so that
/// both the first one and the order tell. `reference_reduction` knows it, and no other one that is compiled.
[[nodiscard]] const ReduceOp& compiled_difference();

}  // namespace tutti::test
