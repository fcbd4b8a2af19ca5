// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"

#include "perf/processes/interrupt.hpp"

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

Failure error(ErrorCode code, const std::string& message) {
  return {run_failed, code, message};
}

TEST(PerfFailure, SurvivesBeingTold) {
  const std::exception_ptr exceptions[] = {std::make_exception_ptr(UsageError("-x: no")),
                                           std::make_exception_ptr(Interrupted()),
                                           std::make_exception_ptr(TimedOut("-T: too long")),
                                           std::make_exception_ptr(Error(ErrorCode::out_of_memory, "full")),
                                           std::make_exception_ptr(std::runtime_error(""))};
  for (const std::exception_ptr& exception : exceptions) {
    const Failure failure = failure_of(exception);
    EXPECT_EQ(decode_failure(encode(failure)), failure) << failure.message;
    EXPECT_FALSE(encode(failure).empty());
    try {
      raise(decode_failure(encode(failure)));
    } catch (...) {
      EXPECT_EQ(failure_of(std::current_exception()), failure);
    }
  }
  EXPECT_THROW(raise(failure_of(exceptions[0])), UsageError);
  EXPECT_THROW(raise(failure_of(exceptions[1])), Interrupted);
}

TEST(PerfFailure, OfOneRankNamesIt) {
  const Failure cause = first_cause({std::nullopt, error(ErrorCode::out_of_memory, "full"), std::nullopt});
  EXPECT_EQ(cause.message, "rank 1: full");
  EXPECT_TRUE(cause.is(ErrorCode::out_of_memory));
}

TEST(PerfFailure, OfAllRanksAlikeIsOneMessage) {
  EXPECT_EQ(first_cause({error(ErrorCode::unsupported, "no"), error(ErrorCode::unsupported, "no")}).message,
            "no");
}

TEST(PerfFailure, CausesComeBeforeWhatTheyLedTo) {
  const Failure aborted = error(ErrorCode::aborted, "rank 2 gave up");
  const Failure cause = error(ErrorCode::device_failure, "broken");
  EXPECT_EQ(first_cause({aborted, aborted, cause, cause}).message, "rank 2: broken");
  const Failure interrupted{was_interrupted, {}, "interrupted"};
  const Failure late{timed_out, {}, "-T: too long"};
  EXPECT_EQ(first_cause({aborted, cause, late}).status, timed_out);
  EXPECT_EQ(first_cause({aborted, late, interrupted}).status, was_interrupted);
}

}  // namespace
}  // namespace tutti::perf
