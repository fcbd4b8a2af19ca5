// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/memory.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// The statistics are the sums over the snapshot, each counter adds up, and the segments' blocks leave no
/// gap.
[[nodiscard]] testing::AssertionResult books_balance(const MemoryStats& stats,
                                                     const std::vector<MemorySegment>& segments);

}  // namespace tutti::test
