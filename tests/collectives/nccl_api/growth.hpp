// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/rank.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace tutti::test {

inline void expect_refused(ncclResult_t result, ncclResult_t expected, std::string_view words) {
  const std::string sentence = last_sentence();
  EXPECT_EQ(result, expected) << sentence;
  EXPECT_NE(sentence.find(words), std::string::npos) << sentence;
}

inline void expect_rank(ncclComm_t comm, int rank, int ranks) {
  int known = -1;
  TUTTI_EXPECT_SUCCESS(ncclCommUserRank(comm, &known));
  EXPECT_EQ(known, rank);
  TUTTI_EXPECT_SUCCESS(ncclCommCount(comm, &known));
  EXPECT_EQ(known, ranks);
}

/// Expects all ranks, each of which one thread makes, to be where they belong.
inline void expect_works(ncclComm_t comm, int rank, int ranks) {
  expect_rank(comm, rank, ranks);
  const Tensor mine = floats({static_cast<float>(rank)});
  const Tensor all = zeros({ranks}, {.device = Device::current()});
  TUTTI_EXPECT_SUCCESS(ncclAllGather(mine.data(), all.data(), 1, ncclFloat, comm, nullptr));
  Floats expected;
  for (int i = 0; i < ranks; ++i) expected.push_back(static_cast<float>(i));
  EXPECT_EQ(all.to_vector<float>(), expected);
}

}  // namespace tutti::test
