// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/watch.hpp"

#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_rooms.hpp"
#include "support/standard_error.hpp"
#include "support/timing.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

/// What a rank's watch sees and does, by itself; the test leaves the traces of the other rank.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::RankRooms;
using test::refuses;

class WatchedRank : public testing::Test {
 protected:
  WatchedRank() {
    rooms_.activate_all();
    rooms_.let_live(1);
  }
  [[nodiscard]] RankStatus& other() { return rooms_.state.status(1); }
  void make_call() { static_cast<void>(rooms_.calls.post(Signature{}, false)); }
  [[nodiscard]] bool ends() {
    return becomes_true([this] { return rooms_.abort.is_set(); });
  }

  static inline const std::chrono::milliseconds patience = test::patient(200ms);

  SharedMemory memory_{SharedState::bytes(RankRooms::shape_of(RankRooms::alike(2)))};
  RankRooms rooms_{memory_.data(), RankRooms::alike(2), 0, 30s, 0, patience};
  Watch watch_{rooms_.membership, rooms_.state, rooms_.progress, rooms_.judgement,
               rooms_.waiting,    rooms_.links, rooms_.replays,  rooms_.abort};
};

TEST_F(WatchedRank, GivesSignsOfLifeUntilItsWatchStops) {
  EXPECT_EQ(rooms_.status().watched_at.load(), 0);
  watch_.start();
  EXPECT_TRUE(becomes_true([&] { return rooms_.status().watched_at.load() != 0; }));
  const std::int64_t first = rooms_.status().watched_at.load();
  EXPECT_TRUE(becomes_true([&] { return rooms_.status().watched_at.load() > first; }));
  watch_.stop();
  const std::int64_t last = rooms_.status().watched_at.load();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(rooms_.status().watched_at.load(), last);
}

TEST_F(WatchedRank, EndsTheTeamWhenACallHasLostItsPatience) {
  watch_.start();
  make_call();
  EXPECT_TRUE(ends());
  EXPECT_TRUE(refuses([&] { rooms_.abort.require_running(); }, ErrorCode::timeout,
                      {"barrier (#1) did not finish within", "rank 1 has not made it"}));
}

TEST_F(WatchedRank, LetsACallWaitAsLongAsItsGuardSays) {
  watch_.start();
  {
    const PatienceGuard guard(1h);
    make_call();
  }
  std::this_thread::sleep_for(2 * patience);
  EXPECT_FALSE(rooms_.abort.is_set());
  rooms_.complete(1);
  make_call();
  EXPECT_TRUE(ends()) << "the next one is as impatient as usual";
}

TEST_F(WatchedRank, TellsOfACallThatWaitsAndThatItGoesOn) {
  const PatienceGuard guard(8 * patience);
  test::StandardError log;
  watch_.start();
  make_call();
  std::this_thread::sleep_for(4 * patience);  // told after a quarter of its patience
  rooms_.complete(1);
  std::this_thread::sleep_for(3 * patience);
  watch_.stop();
  EXPECT_TRUE(test::mentions(log.end(), {"rank 0 has waited for", "barrier (#1): rank 1 has not made it",
                                         "barrier (#1) goes on after"}));
}

TEST_F(WatchedRank, EndsTheTeamAtOnceWhenARankThatACallWaitsForHasLeft) {
  const PatienceGuard guard(1h);
  watch_.start();
  make_call();
  other().state = RankStatus::leaving;
  EXPECT_TRUE(ends());
  EXPECT_TRUE(refuses([&] { rooms_.abort.require_running(); }, ErrorCode::peer_unavailable,
                      {"rank 1 has left", "rank 0 waits for it in barrier (#1)"}));
}

TEST_F(WatchedRank, CallsTheHandlerOnceWhenTheTeamHasEnded) {
  std::atomic<int> calls = 0;
  watch_.set_abort_handler([&] { ++calls; });
  watch_.start();
  rooms_.abort.set(ErrorCode::aborted, "enough");
  EXPECT_TRUE(becomes_true([&] { return calls > 0; }));
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tutti::transport::team
