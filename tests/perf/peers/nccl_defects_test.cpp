// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_memory.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// As it is told of a sweep's call between two ranks.
std::string defect(int version, std::string_view operation, DType dtype = DType::float32,
                   ReduceKind kind = ReduceKind::sum) {
  Case what;
  what.bytes = 1 << 20U;
  what.dtype = dtype;
  what.reduce_kind = kind;
  what.members.count = 2;
  return defect_of_windows(version, *find_operation(operation, Mode::ranks), what);
}

TEST(PerfNcclDefects, ListsByWindowsAreLeftOutWhereTheirPartsAreMixedUp) {
  for (const auto* const operation :
       {"all_gather_coalesced", "all_reduce_add_coalesced", "reduce_scatter_coalesced"}) {
    EXPECT_NE(defect(22803, operation), "") << operation;
    for (const int version : {22707, 22807, 22902, 23007})
      EXPECT_EQ(defect(version, operation), "") << operation;
  }
  for (const auto* const operation : {"all_gather", "all_reduce", "reduce_scatter", "broadcast_coalesced",
                                      "all_gather_unequal", "all_to_all_coalesced", "sendrecv"}) {
    EXPECT_EQ(defect(22803, operation), "") << operation;
  }
  // What windows have no kernel for goes another way.
  EXPECT_EQ(defect(22803, "all_reduce_add_coalesced", DType::float64), "");
  EXPECT_EQ(defect(22803, "all_reduce_add_coalesced", DType::float32, ReduceKind::avg), "");
  EXPECT_EQ(defect(22803, "all_reduce_add_coalesced", DType::float32, ReduceKind::min), "");
  EXPECT_NE(defect(22803, "all_gather_coalesced", DType::float64), "");
}

TEST(PerfNcclDefects, AveragesForAllByWindowsAreLeftOutWhereTheyHaveNoKernel) {
  for (const auto* const operation : {"all_reduce", "all_reduce_add_coalesced"}) {
    for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::complex64}) {
      EXPECT_NE(defect(23007, operation, dtype, ReduceKind::avg), "") << operation;
      EXPECT_EQ(defect(22902, operation, dtype, ReduceKind::avg), "") << operation;
      EXPECT_EQ(defect(23007, operation, dtype), "") << operation;
    }
    for (const DType dtype : {DType::float64, DType::int32})
      EXPECT_EQ(defect(23007, operation, dtype, ReduceKind::avg), "") << operation;
  }
  EXPECT_EQ(defect(23007, "reduce_scatter", DType::float32, ReduceKind::avg), "");
}

}  // namespace
}  // namespace tutti::perf
