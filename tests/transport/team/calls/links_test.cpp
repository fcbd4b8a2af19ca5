// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/links.hpp"

#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/timing.hpp"

#include <chrono>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Two ranks announce messages to one another; both are in this process.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::RankComponents;
using test::refuses;

class TwoPartners : public testing::Test {
 protected:
  TwoPartners() {
    zero_.activate_all();
    zero_.let_all_live();
  }
  /// Rank 0 sends, and rank 1 receives, so many elements.
  std::uint64_t send(std::uint64_t elements = 10, bool is_captured = false) {
    return zero_.links.post({{.member = 0, .peer = 1, .is_sent = true, .elements = elements}}, is_captured);
  }
  std::uint64_t receive(std::uint64_t elements = 10, bool is_captured = false) {
    return one_.links.post({{.member = 1, .peer = 0, .is_sent = false, .elements = elements}}, is_captured);
  }
  [[nodiscard]] const LinkLog& sent() const {
    return zero_.state.link_log(0, 1, SharedState::LinkEnd::sender);
  }

  static inline const std::chrono::milliseconds patience = test::patient(200ms);

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(2)))};
  RankComponents zero_{memory_.data(), RankComponents::alike(2), 0, patience};
  RankComponents one_{memory_.data(), RankComponents::alike(2), 1, patience};
};

TEST_F(TwoPartners, BatchesAreUnderWayUntilTheirStreamsHavePassedTheirMarks) {
  EXPECT_EQ(send(), 1U);
  EXPECT_EQ(receive(), 1U);
  EXPECT_TRUE(zero_.links.is_waiting_before(1));
  EXPECT_TRUE(one_.progress.has_batches_under_way());
  one_.progress.mark_batch(0, 1, one_.runtime.backend().default_stream(0));
  EXPECT_TRUE(becomes_true([&] {
    one_.progress.look_at_marks();
    one_.links.look_around(true);
    return !one_.links.is_waiting_before(1);
  }));
  EXPECT_FALSE(one_.progress.has_batches_under_way());
  EXPECT_EQ(one_.state.link_log(0, 1, SharedState::LinkEnd::receiver).received(), 1U);
  EXPECT_FALSE(zero_.abort.is_set());
}

TEST_F(TwoPartners, CapturedBatchesHaveNoNumberAndAreNotWaitedFor) {
  EXPECT_EQ(send(10, true), 0U);
  EXPECT_EQ(receive(10, true), 0U);
  EXPECT_FALSE(zero_.links.is_waiting_before(1));
  EXPECT_TRUE(zero_.calls.has_captured());
}

TEST_F(TwoPartners, SidesThatDifferEndTheTeamWhicheverComesSecond) {
  send(10);
  EXPECT_TRUE(refuses([&] { receive(20); }, ErrorCode::invalid_argument,
                      {"message #1 from member 0 to member 1 does not match", "rank 1 receives 20 float32",
                       "rank 0 sends 10 float32"}));
  EXPECT_TRUE(zero_.abort.is_set());
}

TEST_F(TwoPartners, AMessageThatOnlyOneSideCapturesDiffers) {
  receive(10, true);
  EXPECT_TRUE(refuses([&] { send(10); }, ErrorCode::invalid_argument, {"10 float32, captured"}));
}

TEST_F(TwoPartners, WhatTheLogHasNoRoomForIsAnnouncedWhenTheOtherSideHasComeCloser) {
  for (std::uint64_t number = 0; number <= LinkLog::furthest_ahead; ++number) send();
  EXPECT_EQ(sent().made(), LinkLog::furthest_ahead + 1);
  EXPECT_EQ(sent().posted(), LinkLog::furthest_ahead);
  receive();
  zero_.links.announce();
  EXPECT_EQ(sent().posted(), LinkLog::furthest_ahead + 1);
}

TEST_F(TwoPartners, AMessageForARankThatHasLeftEndsTheTeam) {
  zero_.state.status(1).state = RankStatus::left;
  EXPECT_TRUE(
      refuses([&] { send(); }, ErrorCode::peer_unavailable,
              {"rank 1 has left without receiving message #1 from member 0 to member 1", "rank 0 sends it"}));
}

TEST_F(TwoPartners, WhoDoesNotComeIsNamedWhenThePatienceIsOver) {
  receive();
  EXPECT_TRUE(becomes_true([&] {
    one_.links.look_around(true);
    return one_.abort.is_set();
  }));
  EXPECT_TRUE(refuses([&] { one_.abort.require_running(); }, ErrorCode::timeout,
                      {"message #1 from member 0 to member 1 did not finish on rank 1 within",
                       "rank 0 has not come to send message #1"}));
}

}  // namespace
}  // namespace tutti::transport::team
