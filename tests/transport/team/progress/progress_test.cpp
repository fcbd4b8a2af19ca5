// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/progress.hpp"

#include "os/shared_memory.hpp"
#include "stream/stream_access.hpp"
#include "support/machines/rank_components.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/stream.hpp"

#include <cstdint>
#include <optional>

#include <gtest/gtest.h>

/// How far calls have come, when the test sets the flags.
namespace tutti::transport::team {
namespace {

using test::RankComponents;

class CallsInProgress : public testing::Test {
 protected:
  static constexpr Signature barrier{};

  std::uint64_t post(bool is_captured = false) { return components_.calls.post(barrier, is_captured); }
  [[nodiscard]] Progress& progress() { return components_.progress; }

  const RankComponents::Ranks ranks_{{.host = "here", .member_count = 2},
                                     {.host = "here", .member_count = 1}};
  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(ranks_))};
  RankComponents components_{memory_.data(), ranks_, 0};
};

TEST_F(CallsInProgress, ACallIsCompleteWhenAllMembersOfTheRankAreThere) {
  const std::uint64_t call = post();
  EXPECT_TRUE(progress().has_calls_under_way());
  EXPECT_EQ(progress().oldest_under_way(), call);
  backend::set_flag(components_.state.done_flag(0), 1);
  EXPECT_FALSE(progress().has_completed(0, call));
  EXPECT_EQ(progress().completed_by_rank(0), 0U);
  backend::set_flag(components_.state.done_flag(1), 1);
  EXPECT_TRUE(progress().has_completed(0, call));
  EXPECT_FALSE(progress().has_completed(1, call));
  EXPECT_FALSE(progress().has_calls_under_way());
  EXPECT_EQ(progress().oldest_under_way(), std::nullopt);
  EXPECT_EQ(progress().completed(), call);
}

TEST_F(CallsInProgress, CapturedCallsAreNotWaitedFor) {
  post();
  components_.complete(1);
  post(true);
  post(true);
  EXPECT_FALSE(progress().has_calls_under_way());
  const std::uint64_t call = post();
  EXPECT_EQ(progress().oldest_under_way(), call);
}

TEST_F(CallsInProgress, ACallWithoutRoundsIsCompleteWhenStreamsHavePassedItsMarks) {
  const Stream stream(0);
  post();
  {
    test::StreamGate gate(stream);
    for (const std::size_t local : {0U, 1U}) progress().mark(local, 1, StreamAccess::ref(stream));
    post();
    for (const std::size_t local : {0U, 1U}) progress().mark(local, 2, StreamAccess::ref(stream));
    progress().look_at_marks();
    EXPECT_EQ(progress().completed_by_rank(0), 0U);
    gate.open();
  }
  EXPECT_TRUE(test::becomes_true([&] { return progress().is_idle(); }));
  EXPECT_EQ(progress().completed_by_rank(0), 2U);
}

TEST_F(CallsInProgress, MarksOfATeamThatHasBeenEndedProveNothing) {
  const Stream stream(0);
  post();
  for (const std::size_t local : {0U, 1U}) progress().mark(local, 1, StreamAccess::ref(stream));
  stream.synchronize();
  components_.abort.set(ErrorCode::aborted, "enough");
  EXPECT_FALSE(progress().is_idle());
  EXPECT_FALSE(progress().has_completed(0, 1));
}

}  // namespace
}  // namespace tutti::transport::team
