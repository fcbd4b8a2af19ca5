// SPDX-License-Identifier: Apache-2.0
#include "device/ended_work.hpp"
#include "os/shared_memory.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/standard_error.hpp"
#include "transport/team/calls/ended_calls.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/progress/abort.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include <gtest/gtest.h>

/// How a team ends, who is told, and what is written down: two ranks of two hosts whose memory is one.
namespace tutti::transport::team {
namespace {

using test::mentions;
using test::RankComponents;
using test::refuses;
using test::StandardError;

class EndingTeam : public testing::Test {
 protected:
  EndingTeam() {
    zero_.activate_all();
    zero_.let_all_live();
  }
  [[nodiscard]] static std::size_t count(const std::string& text, std::string_view part) {
    std::size_t found = 0;
    for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }

  static constexpr Signature sum{.collective = Collective::all_reduce, .elements = 10};
  const RankComponents::Ranks ranks_{{.host = "a", .member_count = 1}, {.host = "b", .member_count = 1}};
  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(ranks_))};
  RankComponents zero_{memory_.data(), ranks_, 0};
  RankComponents one_{memory_.data(), ranks_, 1};
};

TEST_F(EndingTeam, TheFirstReasonIsKeptAndAllRanksKnowIt) {
  EXPECT_NO_THROW(one_.abort.require_running());
  zero_.news.listen();
  EXPECT_TRUE(zero_.abort.set(ErrorCode::timeout, "too late"));
  EXPECT_TRUE(zero_.news.wait_for(std::chrono::microseconds(0))) << "other hosts are told at once";
  EXPECT_FALSE(one_.abort.set(ErrorCode::aborted, "enough"));
  for (RankComponents* const rank : {&zero_, &one_}) {
    EXPECT_TRUE(
        refuses([&] { rank->abort.require_running(); }, ErrorCode::timeout, {"Communicator: too late"}));
  }
}

TEST_F(EndingTeam, AFailureSaysWhichRankCannotDoWhatAndIsLoggedOnce) {
  StandardError log;
  for (int times = 0; times < 2; ++times)
    one_.abort.fail("cannot ask its device", {.code = ErrorCode::device_failure, .what = "it is gone"});
  one_.abort.log_reason();
  EXPECT_EQ(count(log.end(), "rank 1 cannot ask its device: it is gone"), 1U);
  EXPECT_TRUE(refuses([&] { zero_.abort.require_running(); }, ErrorCode::device_failure,
                      {"rank 1 cannot ask its device: it is gone"}));
}

TEST_F(EndingTeam, EveryRankLogsTheReasonOnceUnlessTheEndWasAskedFor) {
  {
    StandardError log;
    zero_.abort.log_reason();
    EXPECT_EQ(log.end(), "") << "nothing has ended";
  }
  StandardError log;
  zero_.abort.set(ErrorCode::timeout, "too late");
  for (int times = 0; times < 2; ++times) {
    zero_.abort.log_reason();
    one_.abort.log_reason();
  }
  const std::string text = log.end();
  EXPECT_EQ(count(text, "ended on rank 0 of 2: too late"), 1U) << text;
  EXPECT_EQ(count(text, "ended on rank 1 of 2: too late"), 1U) << text;
}

TEST_F(EndingTeam, AnEndThatWasAskedForIsNotLogged) {
  StandardError log;
  zero_.abort.set(ErrorCode::aborted, "enough");
  one_.abort.log_reason();
  EXPECT_EQ(log.end(), "");
}

TEST_F(EndingTeam, WhoWaitsForADeviceWithACallUnderWayIsToldOnce) {
  EndedCalls ended(zero_.runtime, zero_.membership, zero_.calls, zero_.progress, zero_.abort);
  zero_.calls.has_queued(zero_.calls.post(sum, false));
  EXPECT_FALSE(ended.take_end(0).has_value()) << "it goes on";
  zero_.abort.set(ErrorCode::timeout, "too late");
  const std::optional<Error> told = ended.take_end(0);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->code(), ErrorCode::timeout);
  EXPECT_FALSE(ended.take_end(0).has_value()) << "it has been told";
}

TEST_F(EndingTeam, NobodyIsToldWhoseCallsAreComplete) {
  EndedCalls ended(zero_.runtime, zero_.membership, zero_.calls, zero_.progress, zero_.abort);
  const std::uint64_t call = zero_.calls.post(sum, false);
  zero_.calls.has_queued(call);
  zero_.complete(call);
  zero_.abort.set(ErrorCode::timeout, "too late");
  EXPECT_FALSE(ended.take_end(0).has_value());
}

TEST_F(EndingTeam, WhoMayHaveReplayedCallsIsTold) {
  EndedCalls ended(zero_.runtime, zero_.membership, zero_.calls, zero_.progress, zero_.abort);
  static_cast<void>(zero_.calls.post(sum, true));
  zero_.abort.set(ErrorCode::timeout, "too late");
  EXPECT_TRUE(ended.take_end(0).has_value());
}

TEST_F(EndingTeam, DevicesReportItFromStartToStop) {
  EndedCalls ended(zero_.runtime, zero_.membership, zero_.calls, zero_.progress, zero_.abort);
  zero_.calls.has_queued(zero_.calls.post(sum, false));
  zero_.abort.set(ErrorCode::timeout, "too late");
  EXPECT_NO_THROW(zero_.runtime.part<EndedWork>().report(0));
  ended.start();
  EXPECT_TRUE(refuses([&] { zero_.runtime.part<EndedWork>().report(0); }, ErrorCode::timeout, {"too late"}));
  ended.stop();
  EXPECT_NO_THROW(zero_.runtime.part<EndedWork>().report(0));
}

TEST_F(EndingTeam, TheRecordHasEveryRanksLastCalls) {
  static_cast<void>(zero_.calls.post(sum, false));
  static_cast<void>(one_.calls.post(sum, false));
  static_cast<void>(one_.calls.post(sum, true));
  one_.complete(1);
  const std::string record = zero_.record.json();
  EXPECT_TRUE(mentions(record, {R"("schema":"tutti-flight-record/1")", R"("written_by":0)",
                                R"("aborted":null)", R"("host":"a")", R"("host":"b")", R"("state":"active")",
                                R"("captured":true)", R"("completed":true)", R"("completed":false)"}));
  EXPECT_EQ(count(record, "all_reduce of"), 3U) << record;
  EXPECT_EQ(count(one_.record.json(1), "all_reduce of"), 2U) << "one of each rank";
}

TEST_F(EndingTeam, TheRecordHasTheMessagesOfLinksThatHaveBeenUsed) {
  static_cast<void>(zero_.links.post({{.member = 0, .peer = 1, .is_sent = true, .elements = 7}}, false));
  EXPECT_TRUE(mentions(one_.record.json(), {R"("from":0,"to":1,"sent":{"made":1)", "7 float32",
                                            R"("received":{"made":0)", R"("completed":0)"}));
}

TEST_F(EndingTeam, TheRecordOfATimeoutHasTheReasonAndTheLastCallsBeforeIt) {
  for (int call = 0; call < 6; ++call) static_cast<void>(zero_.calls.post(sum, false));
  const std::string record = zero_.record.of_timeout(6, "too \xff late");
  EXPECT_TRUE(mentions(record, {R"("aborted":"too )", R"("sequence":3)", R"("sequence":6)"}));
  EXPECT_EQ(record.find(R"("sequence":2)"), std::string::npos) << record;
}

TEST_F(EndingTeam, TheRecordIsLoggedByTheFirstHostThatGoesOn) {
  const auto log_of = [](const RankComponents& rank) {
    StandardError log;
    rank.record.keep("{}");
    return log.end();
  };
  EXPECT_EQ(count(log_of(zero_), "flight record: {}"), 1U);
  EXPECT_EQ(log_of(one_), "") << "the other host does";
  zero_.status().state = RankStatus::left;
  EXPECT_EQ(count(log_of(one_), "flight record: {}"), 1U);
}

}  // namespace
}  // namespace tutti::transport::team
