// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operation.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

const Operation& between_ranks(const std::string& name) {
  return *find_operation(name, Mode::ranks);
}

TEST(PerfOperation, BusFactorsAreTheSharesOfThePayloadThatMove) {
  const std::pair<const char*, double> factors[] = {{"broadcast", 1.0},
                                                    {"broadcast_coalesced", 1.0},
                                                    {"reduce_add", 1.0},
                                                    {"scatter", 0.75},
                                                    {"gather", 0.75},
                                                    {"all_gather", 0.75},
                                                    {"all_reduce_add", 1.5},
                                                    {"reduce_scatter_add", 0.75},
                                                    {"all_to_all", 0.75},
                                                    {"all_gather_coalesced", 0.75},
                                                    {"reduce_scatter_coalesced", 0.75},
                                                    {"all_to_all_coalesced", 0.75},
                                                    {"sendrecv", 1.0},
                                                    // Of 1 + 2 + 3 + 4 units all but one move.
                                                    {"all_gather_unequal", 0.9},
                                                    {"reduce_scatter_add_unequal", 0.9},
                                                    {"all_to_all_unequal", 0.9},
                                                    {"all_reduce_add_coalesced", 1.5}};
  for (const auto& [name, factor] : factors)
    EXPECT_DOUBLE_EQ(between_ranks(name).bus_factor(4), factor) << name;
  for (const char* name : {"all_reduce_add", "all_gather", "all_to_all_unequal"})
    EXPECT_DOUBLE_EQ(between_ranks(name).bus_factor(1), 0.0) << name;
  for (const Mode mode : {Mode::single_process, Mode::ranks}) {
    for (const Operation* const operation : collective_operations(mode))
      EXPECT_GT(operation->bus_factor(2), 0.0) << operation->name();
  }
}

TEST(PerfOperation, OnlySomeHaveARoot) {
  EXPECT_TRUE(between_ranks("gather").has_root());
  for (const char* name : {"all_gather", "all_reduce_add", "reduce_scatter_add"}) {
    EXPECT_FALSE(between_ranks(name).has_root()) << name;
  }
}

TEST(PerfOperation, InPlaceAnInputOrOutputIsThePartOfTheOtherWhereItBelongs) {
  for (const char* name :
       {"broadcast", "reduce_add", "all_reduce_add_coalesced", "all_gather", "reduce_scatter_add",
        "all_gather_unequal", "reduce_scatter_add_unequal", "all_to_all", "all_to_all_unequal",
        "all_gather_coalesced", "reduce_scatter_coalesced", "all_to_all_coalesced"}) {
    EXPECT_TRUE(between_ranks(name).has(Placement::in_place)) << name;
  }
  for (const char* name : {"scatter", "gather"}) {
    EXPECT_FALSE(between_ranks(name).has(Placement::in_place)) << name;
    EXPECT_TRUE(between_ranks(name).has(Placement::out_of_place)) << name;
  }
}

}  // namespace
}  // namespace tutti::perf
