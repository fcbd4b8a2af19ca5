// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/request.hpp"

#include <cstddef>

#include <gtest/gtest.h>

namespace tutti::collectives {
namespace {

TEST(Request, UsesTheMemoryOfEachTypeOfOperandsAgain) {
  SpareOperands spare;
  Request request;
  request.reset(Collective::all_reduce, "all_reduce", 9, &spare);
  for (int column = 0; column < 9; ++column) request.add_column(3, DType::float32);
  const std::size_t columns = request.reduced().columns.capacity();
  request.reset(Collective::all_gather, "all_gather", 7, &spare);
  EXPECT_TRUE(request.is_empty());
  for (int column = 0; column < 7; ++column) request.add_column(3, DType::float32);
  const std::size_t bytes = request.copied().bytes.capacity();
  for (int round = 0; round < 2; ++round) {
    request.reset(Collective::reduce_scatter, "reduce_scatter", 1, &spare);
    EXPECT_TRUE(request.is_empty());
    EXPECT_EQ(request.reduced().columns.capacity(), columns);
    EXPECT_EQ(request.reduced().kind, ReduceKind::sum);
    request.reset(Collective::broadcast, "broadcast", 1, &spare);
    EXPECT_TRUE(request.is_empty());
    EXPECT_EQ(request.copied().bytes.capacity(), bytes);
  }
}

}  // namespace
}  // namespace tutti::collectives
