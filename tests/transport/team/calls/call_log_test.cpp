// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/call_log.hpp"

#include "os/shared_memory.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/timing.hpp"

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Two ranks announce calls; both are in this process.
namespace tutti::transport::team {
namespace {

using test::RankComponents;
using test::refuses;

class TwoCallers : public testing::Test {
 protected:
  static constexpr Signature sum{.collective = Collective::all_reduce, .elements = 10};
  static constexpr Signature longer_sum{.collective = Collective::all_reduce, .elements = 20};

  const RankComponents::Ranks ranks_{{.host = "here", .member_count = 1},
                                     {.host = "here", .member_count = 2}};
  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(ranks_))};
  RankComponents zero_{memory_.data(), ranks_, 0};
  RankComponents one_{memory_.data(), ranks_, 1};
};

TEST_F(TwoCallers, CallsAreNumberedAlike) {
  EXPECT_EQ(zero_.calls.post(sum, false), 1U);
  EXPECT_EQ(zero_.calls.post(longer_sum, false), 2U);
  EXPECT_EQ(one_.calls.post(sum, false), 1U);
  EXPECT_EQ(one_.calls.post(longer_sum, false), 2U);
  EXPECT_EQ(one_.calls.last(), 2U);
  EXPECT_NO_THROW(zero_.abort.require_running());
}

TEST_F(TwoCallers, ACallThatDiffersEndsTheTeamWithBothSignatures) {
  static_cast<void>(zero_.calls.post(sum, false));
  EXPECT_TRUE(refuses([&] { static_cast<void>(one_.calls.post(longer_sum, false)); },
                      ErrorCode::invalid_argument,
                      {"call #1 does not match", "rank 1", "20 float32", "rank 0", "10 float32"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(zero_.calls.post(sum, false)); }, ErrorCode::invalid_argument,
                      {"call #1 does not match"}));
  EXPECT_TRUE(zero_.calls.is_over());
}

TEST_F(TwoCallers, ACallThatOnlyOneCapturesDiffers) {
  static_cast<void>(zero_.calls.post(sum, true));
  EXPECT_TRUE(zero_.calls.has_captured());
  EXPECT_TRUE(refuses([&] { static_cast<void>(one_.calls.post(sum, false)); }, ErrorCode::invalid_argument,
                      {"rank 0 calls", "captured"}));
}

TEST_F(TwoCallers, WhoIsFarAheadWaitsForTheOther) {
  for (std::uint64_t call = 1; call <= RankStatus::furthest_ahead; ++call)
    static_cast<void>(zero_.calls.post(sum, false));
  std::atomic<bool> is_posted = false;
  std::thread ahead([&] {
    static_cast<void>(zero_.calls.post(sum, false));
    is_posted = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_posted);
  static_cast<void>(one_.calls.post(sum, false));
  EXPECT_TRUE(test::becomes_true([&] { return is_posted.load(); }));
  ahead.join();
}

TEST_F(TwoCallers, AgreeUponTheLengthsOfAllMembers) {
  Signature of_zero{.collective = Collective::gather, .root = 0, .elements = 4};
  Signature of_one = of_zero;
  of_zero.lengths = {7};
  of_one.lengths = {5, 9};
  static_cast<void>(zero_.calls.post(of_zero, false));
  static_cast<void>(one_.calls.post(of_one, false));
  const std::vector<std::uint64_t> all{7, 5, 9};
  EXPECT_EQ(zero_.calls.agree(1, of_zero), all);
  EXPECT_EQ(one_.calls.agree(1, of_one), all);
}

TEST_F(TwoCallers, AreHeldOnlyWhileNothingIsUnderWay) {
  EXPECT_TRUE(zero_.calls.hold_if_idle().owns_lock());
  static_cast<void>(zero_.calls.post(sum, false));
  EXPECT_FALSE(zero_.calls.hold_if_idle().owns_lock());
  zero_.complete(1);
  EXPECT_TRUE(zero_.calls.hold_if_idle().owns_lock());
  {
    const std::lock_guard is_calling(zero_.calls.mutex());
    std::thread([&] { EXPECT_FALSE(zero_.calls.hold_if_idle().owns_lock()); }).join();
  }
  static_cast<void>(zero_.calls.post(sum, true));
  EXPECT_FALSE(zero_.calls.hold_if_idle().owns_lock()) << "a graph may run at any time";
}

TEST_F(TwoCallers, WhoWaitsForThisRankClosesNothing) {
  EXPECT_FALSE(zero_.calls.closes_nothing(1));
  static_cast<void>(one_.calls.post(sum, false));
  EXPECT_TRUE(zero_.calls.closes_nothing(1)) << "its call waits for what this rank has not queued";
  const std::uint64_t call = zero_.calls.post(sum, false);
  EXPECT_TRUE(zero_.calls.closes_nothing(1));
  zero_.calls.has_queued(call);
  EXPECT_FALSE(zero_.calls.closes_nothing(1));
}

}  // namespace
}  // namespace tutti::transport::team
