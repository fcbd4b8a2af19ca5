// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Checks that the statistics are the sums over the snapshot, that each counter adds up, and that the
/// segments' blocks leave no gap.
[[nodiscard]] testing::AssertionResult books_balance(const MemoryStats& stats,
                                                     const std::vector<MemorySegment>& segments);

/// Returns the `MemorySegment::graph_pool` of the tensor's memory; 0 if there is none, as for memory that is
/// not a device's.
[[nodiscard]] std::uint64_t graph_pool_of(const TensorView& tensor);

}  // namespace tutti::test
