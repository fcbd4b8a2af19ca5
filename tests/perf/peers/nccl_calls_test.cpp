// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_calls.hpp"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfNcclCalls, AreMessagesWhereNcclHasNoSuchCollective) {
  const std::set<std::string_view> messages{
      "scatter", "gather", "all_to_all", "all_to_all_coalesced", "all_to_all_unequal", "sendrecv"};
  for (const Mode mode : {Mode::single_process, Mode::ranks}) {
    for (const Operation* const operation : collective_operations(mode)) {
      if (!operation->moves_tensors()) continue;
      EXPECT_EQ(NcclCalls::kind_of(*operation) == NcclCallKind::messages,
                messages.count(operation->name()) != 0)
          << operation->name();
    }
  }
  EXPECT_EQ(NcclCalls::kind_of(copy_operation()), NcclCallKind::messages);
}

}  // namespace
}  // namespace tutti::perf
