// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/watchdog.hpp"

#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
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
using test::RankComponents;
using test::refuses;

class WatchedRank : public testing::Test {
 protected:
  WatchedRank() {
    components_.activate_all();
    components_.let_live(1);
  }
  [[nodiscard]] RankStatus& other() { return components_.state.status(1); }
  void make_call() { static_cast<void>(components_.calls.post(Signature{}, false)); }
  [[nodiscard]] bool ends() {
    return becomes_true([this] { return components_.abort.is_set(); });
  }

  static inline const std::chrono::milliseconds patience = test::patient(200ms);

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(2)))};
  RankComponents components_{memory_.data(), RankComponents::alike(2), 0, 30s, 0, patience};
  Watchdog watchdog_{components_.membership,       components_.state,   components_.progress,
                     components_.failure_detector, components_.waiting, components_.links,
                     components_.replays,          components_.abort};
};

TEST_F(WatchedRank, GivesSignsOfLifeUntilItsWatchStops) {
  EXPECT_EQ(components_.status().watched_at.load(), 0);
  watchdog_.start();
  EXPECT_TRUE(becomes_true([&] { return components_.status().watched_at.load() != 0; }));
  const std::int64_t first = components_.status().watched_at.load();
  EXPECT_TRUE(becomes_true([&] { return components_.status().watched_at.load() > first; }));
  watchdog_.stop();
  const std::int64_t last = components_.status().watched_at.load();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(components_.status().watched_at.load(), last);
}

TEST_F(WatchedRank, EndsTheTeamWhenACallHasLostItsPatience) {
  watchdog_.start();
  make_call();
  EXPECT_TRUE(ends());
  EXPECT_TRUE(refuses([&] { components_.abort.require_running(); }, ErrorCode::timeout,
                      {"barrier (#1) did not finish within", "rank 1 has not made it"}));
}

TEST_F(WatchedRank, LetsACallWaitAsLongAsItsGuardSays) {
  watchdog_.start();
  {
    const PatienceGuard guard(1h);
    make_call();
  }
  std::this_thread::sleep_for(2 * patience);
  EXPECT_FALSE(components_.abort.is_set());
  components_.complete(1);
  make_call();
  EXPECT_TRUE(ends()) << "the next one is as impatient as usual";
}

TEST_F(WatchedRank, TellsOfACallThatWaitsAndThatItGoesOn) {
  const PatienceGuard guard(8 * patience);
  test::StandardError log;
  watchdog_.start();
  make_call();
  std::this_thread::sleep_for(4 * patience);  // told after a quarter of its patience
  components_.complete(1);
  std::this_thread::sleep_for(3 * patience);
  watchdog_.stop();
  EXPECT_TRUE(test::mentions(log.end(), {"rank 0 has waited for", "barrier (#1): rank 1 has not made it",
                                         "barrier (#1) goes on after"}));
}

TEST_F(WatchedRank, EndsTheTeamAtOnceWhenARankThatACallWaitsForHasLeft) {
  const PatienceGuard guard(1h);
  watchdog_.start();
  make_call();
  other().state = RankStatus::leaving;
  EXPECT_TRUE(ends());
  EXPECT_TRUE(refuses([&] { components_.abort.require_running(); }, ErrorCode::peer_unavailable,
                      {"rank 1 has left", "rank 0 waits for it in barrier (#1)"}));
}

TEST_F(WatchedRank, CallsTheHandlerOnceWhenTheTeamHasEnded) {
  std::atomic<int> calls = 0;
  watchdog_.set_abort_handler([&] { ++calls; });
  watchdog_.start();
  components_.abort.set(ErrorCode::aborted, "enough");
  EXPECT_TRUE(becomes_true([&] { return calls > 0; }));
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tutti::transport::team
