// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// The statistics are the sums over the snapshot, each counter adds up, and the segments' blocks leave no
/// gap.
[[nodiscard]] testing::AssertionResult books_balance(const MemoryStats& stats,
                                                     const std::vector<MemorySegment>& segments);

/// The `MemorySegment::graph_pool` that the tensor's memory is from; 0 if none, as for what is not a
/// device's.
[[nodiscard]] std::uint64_t graph_pool_of(const TensorView& tensor);

}  // namespace tutti::test
