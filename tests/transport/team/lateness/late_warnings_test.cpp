// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/late_warnings.hpp"

#include "os/shared_memory.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/standard_error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// What the log tells of calls that wait for late ranks, and when. No time passes: the test says how long a
/// wait has lasted.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::mentions;
using test::RankComponents;
using test::StandardError;

/// Rank `self` of four, which are alive. One that stands still is remarkable after half of `short_timeout`.
class WaitingRank {
 public:
  explicit WaitingRank(SharedMemory& memory, std::size_t self = 0)
      : components_(memory.data(), RankComponents::alike(4), self, short_timeout),
        warnings_(components_.membership, components_.state, components_.progress,
                  components_.failure_detector) {
    components_.activate_all();
    components_.let_all_live();
  }

  void make_call(std::size_t rank, std::uint64_t sequence) {
    RankStatus& status = components_.state.status(rank);
    status.entries[sequence % RankStatus::history].write(sequence, Signature{}, false, RankStatus::now());
    status.last_sequence = sequence;
  }
  void complete(std::size_t rank, std::uint32_t sequence) {
    backend::set_flag(components_.state.done_flag(rank), sequence);
  }
  void stand_still(std::size_t rank) {
    components_.state.status(rank).watched_at = 0;
    std::this_thread::sleep_for(short_timeout);
  }

  /// What the log says when the call has waited for so long.
  std::string log_after(std::chrono::milliseconds lasted, std::uint64_t sequence = 1,
                        std::chrono::milliseconds patience = 10min) {
    StandardError log;
    warnings_.look({.sequence = sequence, .lasted = lasted, .patience = patience, .missing = &unknown_});
    return log.end();
  }
  std::string log_of_going_on(std::uint64_t sequence) {
    StandardError log;
    warnings_.goes_on(sequence);
    return log.end();
  }

 private:
  static constexpr std::chrono::milliseconds short_timeout{10};

  RankComponents components_;
  std::vector<std::size_t> unknown_;
  LateWarnings warnings_;
};

SharedMemory memory_of_four() {
  return SharedMemory(SharedState::bytes(RankComponents::shape_of(RankComponents::alike(4))));
}

TEST(LateWarnings, NameWhoIsLateAtGrowingDistancesAndThatTheCallGoesOn) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory);
  for (const std::size_t other : {0U, 1U, 3U}) rank.make_call(other, 1);
  std::vector<int> told;
  std::string text;
  for (int second = 1; second < 600; ++second) {
    const std::string log = rank.log_after(std::chrono::seconds(second));
    if (!log.empty()) told.push_back(second);
    if (text.empty()) text = log;
  }
  EXPECT_EQ(told, (std::vector{10, 30, 90, 270}));
  EXPECT_TRUE(
      mentions(text, {"rank 0 has waited for 10000 ms in barrier (#1): rank 2 has not made it, its last "
                      "call is nothing yet; all ranks give up after 600000 ms"}));
  EXPECT_TRUE(mentions(rank.log_of_going_on(1), {"barrier (#1) goes on after "}));
  EXPECT_EQ(rank.log_of_going_on(1), "") << "it has been told";
}

TEST(LateWarnings, ComeEarlyWhereAWaitMayNotLastLong) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory);
  rank.make_call(0, 1);
  EXPECT_EQ(rank.log_after(999ms, 1, 4s), "");
  EXPECT_TRUE(mentions(rank.log_after(1000ms, 1, 4s), {"1000 ms", "rank 1 has", "rank 2 has", "rank 3 has"}));
}

TEST(LateWarnings, SayNothingOfCallsThatGoOnInTime) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory);
  for (std::uint64_t call = 1; call < 50; ++call) {
    rank.make_call(0, call);
    EXPECT_EQ(rank.log_after(9s, call), "");
    EXPECT_EQ(rank.log_of_going_on(call), "");
  }
}

TEST(LateWarnings, WaitLongerWhereAllRanksHaveMadeTheCallAndMayHaveQueuedIt) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory);
  for (std::size_t other = 0; other < 4; ++other) rank.make_call(other, 1);
  for (const std::size_t other : {1U, 2U}) rank.complete(other, 1);
  EXPECT_EQ(rank.log_after(10s), "");
  EXPECT_EQ(rank.log_after(30s), "");
  EXPECT_TRUE(mentions(rank.log_after(90s), {"rank 3 has made it and not completed it"}));
}

TEST(LateWarnings, ComeFromTheFirstRankThatWaitsAndLives) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory, 2);
  for (const std::size_t other : {0U, 1U, 2U}) rank.make_call(other, 1);
  rank.complete(0, 1);
  EXPECT_EQ(rank.log_after(10s), "") << "rank 1 tells";
  EXPECT_EQ(rank.log_of_going_on(1), "");
  rank.stand_still(1);
  EXPECT_TRUE(mentions(rank.log_after(30s), {"rank 2 has waited for 30000 ms", "rank 1 has made it"}));
}

TEST(LateWarnings, OfAHostThatWaitsInACompletedCallComeFromOneThatHasMadeAsMany) {
  SharedMemory memory = memory_of_four();
  WaitingRank rank(memory, 1);
  for (const std::uint64_t call : {1U, 2U}) rank.make_call(1, call);
  rank.make_call(0, 1);
  rank.complete(0, 1);
  rank.complete(1, 2);
  EXPECT_TRUE(mentions(rank.log_after(10s), {"rank 1 has waited for 10000 ms in barrier (#1)"}));
}

}  // namespace
}  // namespace tutti::transport::team
