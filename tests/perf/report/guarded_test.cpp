// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"
#include "perf/processes/interrupt.hpp"
#include "perf/report/output.hpp"
#include "tutti/error.hpp"

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

template <class Thrown>
int status_of_throwing(const Thrown& thrown, bool speaks = true) {
  return guarded(Output(speaks), [&thrown]() -> int { throw thrown; });
}

TEST(PerfGuarded, WhatIsThrownHasAStatus) {
  EXPECT_EQ(guarded(Output(true), [] { return 4; }), 4);
  testing::internal::CaptureStderr();
  EXPECT_EQ(status_of_throwing(UsageError("-x: expected y")), bad_usage);
  EXPECT_EQ(status_of_throwing(TimedOut("-T: too long")), timed_out);
  EXPECT_EQ(status_of_throwing(Interrupted()), was_interrupted);
  EXPECT_EQ(status_of_throwing(Error(ErrorCode::transport_failure, "lost")), run_failed);
  EXPECT_EQ(status_of_throwing(UsageError("of a rank that says nothing"), false), bad_usage);
  EXPECT_EQ(
      testing::internal::GetCapturedStderr(),
      "tutti-perf: -x: expected y\ntutti-perf: -T: too long\ntutti-perf: interrupted\ntutti-perf: lost\n");
}

}  // namespace
}  // namespace tutti::perf
