// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/replays.hpp"

#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/timing.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// How what members note of their calls is judged. The test writes the notes.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::mentions;
using test::RankComponents;

/// Rank 0 of three ranks with a member each, which have captured two calls.
class NotedCalls : public testing::Test {
 protected:
  NotedCalls() {
    components_.activate_all();
    components_.let_all_live();
    capture();
    capture();
  }
  void capture() {
    static_cast<void>(components_.calls.post({.collective = Collective::broadcast, .elements = 7}, true));
  }
  void note(std::size_t member, std::uint64_t first_round, std::uint64_t number) {
    backend::TeamRecord::Call& call = components_.state.record(member).of_round(first_round);
    call.number = number;
    call.first_round = first_round;
  }
  void begin_replay(std::size_t member, std::uint64_t first_round, std::uint64_t number) {
    note(member, first_round, backend::TeamRecord::number_of(number, true));
    ++components_.state.record(member).latest_round;
  }
  void wait_in_replay(std::size_t member, std::uint64_t first_round, std::uint64_t number) {
    begin_replay(member, first_round, number);
    ++components_.state.record(member).waits;
  }
  void go_on(std::size_t member) { --components_.state.record(member).waits; }
  void look() { components_.replays.look_around(true); }
  [[nodiscard]] bool has_ended() const { return components_.abort.is_set(); }
  [[nodiscard]] std::string reason() const { return has_ended() ? components_.abort.reason().what() : ""; }

  static inline const std::chrono::milliseconds patience = test::patient(100ms);

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(3)))};
  RankComponents components_{memory_.data(), RankComponents::alike(3), 0, 30s, 0, patience};
};

TEST_F(NotedCalls, ThatDifferAtTheSamePlaceEndTheTeam) {
  begin_replay(0, 5, 1);
  begin_replay(1, 5, 1);
  note(2, 5, 2);
  look();
  EXPECT_FALSE(has_ended()) << "a note may have been half written";
  look();
  EXPECT_TRUE(mentions(reason(), {"calls do not match: rank 0 is in a replay of broadcast of 7 float32",
                                  "(#1)", "rank 2 is in ", "(#2)"}));
}

TEST_F(NotedCalls, ThatSeemToDifferOnceEndNothing) {
  begin_replay(0, 5, 1);
  begin_replay(1, 5, 2);
  look();
  note(1, 5, backend::TeamRecord::number_of(1, true));
  begin_replay(2, 21, 2);  // in the place of the fifth round, and far ahead
  look();
  look();
  EXPECT_FALSE(has_ended()) << reason();
}

TEST_F(NotedCalls, WaitForNoRankThatHasLeftBehindThem) {
  wait_in_replay(0, 5, 1);
  for (const std::size_t member : {1U, 2U}) begin_replay(member, 5, 1);
  components_.state.status(1).state = RankStatus::left;
  look();
  EXPECT_FALSE(has_ended()) << reason();
  go_on(0);
  begin_replay(0, 6, 2);
  look();
  EXPECT_FALSE(has_ended()) << "it waits for nobody: " << reason();
  wait_in_replay(0, 6, 2);
  look();
  EXPECT_TRUE(
      mentions(reason(), {"rank 1 has left", "rank 0 waits for it in a replay of broadcast", "(#2)"}));
}

TEST_F(NotedCalls, ThatWaitTooLongNameThoseWhoHaveNotBegunThem) {
  wait_in_replay(0, 5, 1);
  begin_replay(2, 5, 1);
  EXPECT_TRUE(becomes_true([&] {
    look();
    return has_ended();
  }));
  EXPECT_TRUE(mentions(reason(), {"a replay of broadcast", "(#1) did not finish on rank 0 within",
                                  ": rank 1 has not begun it, its last call is nothing yet"}));
  EXPECT_EQ(reason().find("rank 2"), std::string::npos) << reason();
}

TEST_F(NotedCalls, ThatWaitTooLongNameThoseWhoHaveNotCompletedThem) {
  for (const std::size_t member : {0U, 2U}) wait_in_replay(member, 5, 1);
  begin_replay(1, 5, 1);
  EXPECT_TRUE(becomes_true([&] {
    look();
    return has_ended();
  }));
  EXPECT_TRUE(mentions(reason(), {": rank 1 has begun it and does not wait in it; rank 2 waits in it too"}));
}

TEST_F(NotedCalls, ThatWaitForNobodyAreNotLate) {
  begin_replay(0, 5, 1);  // a root that has sent what others will take
  for (const test::Stopwatch watch; watch.elapsed() < 3 * patience;) look();
  EXPECT_FALSE(has_ended()) << reason();
  EXPECT_FALSE(components_.replays.are_under_way());
}

TEST_F(NotedCalls, ThatGoOnWithoutLongWaitsAreSeenToMove) {
  look();
  EXPECT_EQ(components_.replays.moved_at(), 0) << "no replay has begun";
  begin_replay(0, 5, 1);
  look();
  const std::int64_t begun = components_.replays.moved_at();
  EXPECT_GT(begun, 0);
  look();
  EXPECT_EQ(components_.replays.moved_at(), begun);
  begin_replay(0, 6, 2);
  look();
  EXPECT_GT(components_.replays.moved_at(), begun);
}

TEST_F(NotedCalls, ThatGoOnAreNotLate) {
  wait_in_replay(0, 5, 1);
  for (const test::Stopwatch watch; watch.elapsed() < 3 * patience;) {
    begin_replay(0, 5, 1);
    look();
    EXPECT_TRUE(components_.replays.are_under_way());
    EXPECT_NE(components_.replays.moved_at(), 0);
  }
  EXPECT_FALSE(has_ended()) << reason();
  go_on(0);
  look();
  EXPECT_FALSE(components_.replays.are_under_way());
}

}  // namespace
}  // namespace tutti::transport::team
