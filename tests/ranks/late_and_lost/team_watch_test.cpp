// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/lateness/suspension_detector.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/team.hpp"
#include "tutti/error.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Which of a team's calls count as late, when nothing but what the ranks leave for one another says how far
/// they have come.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;
using transport::team::Attempt;
using transport::team::LiveTeams;
using transport::team::Signature;
using transport::team::SuspensionDetector;
using transport::team::Team;

const std::chrono::milliseconds call_timeout = patient(1000ms);

/// A team of one member per rank, whose calls have no work: the test says when they are complete.
class Calls {
 public:
  explicit Calls(Exchange& exchange)
      : team_(
            Runtime::get(), exchange,
            {.timeout = call_timeout, .patience = call_timeout, .window_bytes = 1U << 20U, .devices = {0}}) {}

  [[nodiscard]] Team& team() { return team_; }
  std::uint64_t post(bool is_captured = false) {
    return team_.calls().post(Signature{.collective = Collective::barrier}, is_captured);
  }
  void complete(std::uint64_t sequence) {
    backend::set_flag(team_.state().done_flag(team_.membership().first_local()),
                      static_cast<std::uint32_t>(sequence));
  }
  /// As if there had been so many, all by rounds or all by marks.
  void pretend_to_have_completed(std::uint64_t count, bool by_rounds) {
    backend::SharedFlag& flag = by_rounds ? team_.state().done_flag(team_.membership().first_local())
                                          : team_.state().passed_flag(team_.membership().first_local());
    backend::set_flag(flag, static_cast<std::uint32_t>(count));
    team_.state().status(team_.membership().rank()).last_sequence.store(count);
  }
  void expect_late(std::uint64_t sequence) {
    const Stopwatch watch;
    while (!team_.abort().is_set() && watch.elapsed() < call_timeout + slack)
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(
        refuses([&] { team_.abort().require_running(); }, ErrorCode::timeout,
                {fmt::format("barrier (#{})", sequence), fmt::format("within {} ms", call_timeout.count())}));
  }

 private:
  Team team_;
};

TEST(TeamWatch, CapturedCallsAreNotLateHoweverLongTheyAreReplayed) {
  expect_all_right(2, [](Exchange& exchange) {
    Calls calls(exchange);
    calls.complete(calls.post());
    for (int captured = 0; captured < 3; ++captured) calls.post(true);
    std::this_thread::sleep_for(call_timeout + call_timeout / 2);
    const std::uint64_t call = calls.post();
    std::this_thread::sleep_for(call_timeout / 4);
    calls.complete(call);
    EXPECT_NO_THROW(calls.team().abort().require_running());
    transport::team::synchronize(exchange);
    calls.post(true);
    calls.expect_late(calls.post());
  });
}

TEST(TeamWatch, TheTimeOfACallBeginsWhenTheOneBeforeIsComplete) {
  expect_all_right(2, [](Exchange& exchange) {
    Calls calls(exchange);
    for (int call = 0; call < 6; ++call) calls.post();
    for (std::uint64_t call = 1; call < 6; ++call) {
      std::this_thread::sleep_for(call_timeout / 3);
      calls.complete(call);
    }
    EXPECT_NO_THROW(calls.team().abort().require_running());
    calls.expect_late(6);
  });
}

TEST(TeamWatch, CallsAreLateWhateverTheirNumbers) {
  constexpr std::uint64_t half = std::uint64_t{1} << 31U;
  // A team for each number, all in the same two processes: their calls become late at one time.
  struct Numbered {
    Calls calls;
    std::string trace;
    std::uint64_t call = 0;
    Numbered(Exchange& exchange, std::uint64_t count, bool by_rounds)
        : calls(exchange), trace(fmt::format("after {} calls by {}", count, by_rounds ? "rounds" : "marks")) {
      calls.pretend_to_have_completed(count, by_rounds);
    }
  };
  expect_all_right(2, [](Exchange& exchange) {
    std::list<Numbered> teams;
    for (const std::uint64_t count : {half - 3, half + 3, 2 * half - 3, 2 * half + 3, 3 * half + 3}) {
      for (const bool by_rounds : {true, false}) teams.emplace_back(exchange, count, by_rounds);
    }
    transport::team::synchronize(exchange);
    for (Numbered& team : teams) {
      SCOPED_TRACE(team.trace);
      EXPECT_FALSE(team.calls.team().progress().has_calls_under_way());
      team.call = team.calls.post();
      EXPECT_TRUE(team.calls.team().progress().has_calls_under_way());
    }
    for (Numbered& team : teams) {
      SCOPED_TRACE(team.trace);
      team.calls.expect_late(team.call);
    }
  });
}

TEST(LiveTeams, AreCountedByDevice) {
  expect_all_right(2, [](Exchange& exchange) {
    Calls first(exchange);
    LiveTeams& live_teams = Runtime::get().part<LiveTeams>();
    EXPECT_EQ(first.team().live_teams().room_on(0).count(), 1U);
    {
      Calls second(exchange);
      EXPECT_EQ(first.team().live_teams().room_on(0).count(), 2U);
      EXPECT_EQ(second.team().live_teams().room_on(0).count(), 2U);
      EXPECT_EQ(live_teams.room_on(1).count(), 0U);
    }
    EXPECT_EQ(first.team().live_teams().room_on(0).count(), 1U);
  });
}

TEST(TeamWatch, OfThoseThatHaveNotCompletedACallTheOneThatStandsStillIsNamed) {
  for (const int hosts : {1, 2}) {
    SCOPED_TRACE(testing::Message() << hosts << " hosts");
    Ranks ranks(3, [hosts](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      Calls calls(exchange);
      const std::uint64_t call = calls.post();
      for (std::size_t rank = 0; rank < 3; ++rank) {
        while (calls.team().state().status(rank).last_sequence.load() < call)
          std::this_thread::sleep_for(1ms);
      }
      transport::team::synchronize(exchange);
      if (exchange.rank() == 1) std::raise(SIGSTOP);
      calls.expect_late(call);
      const std::string text = failure_of(0, [&] { calls.team().abort().require_running(); });
      EXPECT_TRUE(
          mentions(text, {"rank 1 has made it and not completed it, and its process has done nothing"}));
      EXPECT_FALSE(mentions(text, {"rank 0 has"}) || mentions(text, {"rank 2 has"})) << text;
    });
    ranks.resume_after_others(call_timeout + slack, 1);
    EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, all_right, all_right}));
  }
}

TEST(SuspensionDetector, JudgesWhileItLooks) {
  for (const auto timeout : {1ms, 3ms, 50ms, 100ms, 1000ms, 60'000ms}) {
    SuspensionDetector pauses(timeout);
    const auto start = SuspensionDetector::Clock::now();
    for (int look = 1; look <= 100; ++look)
      EXPECT_TRUE(pauses.may_judge(start + look * 25ms)) << timeout.count();
  }
}

TEST(SuspensionDetector, JudgesNobodyForAWhileAfterAGap) {
  SuspensionDetector pauses(1000ms);
  const auto back = SuspensionDetector::Clock::now() + 10'000ms;
  EXPECT_FALSE(pauses.may_judge(back));
  EXPECT_FALSE(pauses.may_judge(back + 200ms));
  EXPECT_FALSE(pauses.may_judge(back + 400ms));
  EXPECT_TRUE(pauses.may_judge(back + 500ms));
  EXPECT_TRUE(pauses.may_judge(back + 700ms));
  EXPECT_FALSE(pauses.may_judge(back + 1000ms));
}

TEST(SuspensionDetector, JudgesThoughItAlwaysComesLate) {
  SuspensionDetector pauses(1000ms);
  const auto start = SuspensionDetector::Clock::now();
  int looks = 0;
  while (!pauses.may_judge(start + ++looks * 300ms)) ASSERT_LT(looks, 100);
  EXPECT_EQ(looks, SuspensionDetector::most_gaps_in_a_row + 2);
}

TEST(TeamWatch, AJobThatWasStoppedAsAWholeGoesOn) {
  for (const int hosts : {1, 2}) {
    SCOPED_TRACE(testing::Message() << hosts << " hosts");
    Ranks ranks(2, [hosts](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      Calls calls(exchange);
      const std::uint64_t call = calls.post();
      transport::team::synchronize(exchange);
      std::raise(SIGSTOP);
      std::this_thread::sleep_for(call_timeout / 4);
      calls.complete(call);
      EXPECT_NO_THROW(calls.team().abort().require_running());
      transport::team::synchronize(exchange);
      calls.expect_late(calls.post());
    });
    ranks.resume_after(call_timeout + call_timeout / 2, 0);
    ranks.resume_after(0ms, 1);
    EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, all_right}));
  }
}

TEST(LiveTeams, AreIdleTogether) {
  expect_all_right(2, [](Exchange& exchange) {
    Calls first(exchange);
    Calls second(exchange);
    LiveTeams& live_teams = Runtime::get().part<LiveTeams>();
    const auto are_idle = [&](const transport::team::CallLog* asker = nullptr) {
      bool is_called = false;
      const Attempt attempt = live_teams.while_idle(asker, [&] { is_called = true; });
      EXPECT_EQ(is_called, attempt == Attempt::done);
      return attempt;
    };
    EXPECT_EQ(are_idle(&first.team().calls()), Attempt::done);
    const std::uint64_t call = second.post();
    EXPECT_EQ(are_idle(), Attempt::not_now);
    EXPECT_EQ(are_idle(&first.team().calls()), Attempt::not_now);
    second.complete(call);
    EXPECT_EQ(are_idle(&first.team().calls()), Attempt::done);
    {
      const std::lock_guard is_calling(second.team().calls().mutex());
      EXPECT_EQ(are_idle(), Attempt::not_now);
    }
    static_cast<void>(second.post());
    transport::team::synchronize(exchange);
    second.team().abort().set(ErrorCode::aborted, "enough");
    EXPECT_EQ(are_idle(&first.team().calls()), Attempt::done) << "what has been ended waits for nobody";
    EXPECT_EQ(are_idle(&second.team().calls()), Attempt::not_now);
    static_cast<void>(first.post(true));
    EXPECT_EQ(are_idle(), Attempt::not_soon) << "graphs may run at any time";
    transport::team::synchronize(exchange);
  });
}

}  // namespace
}  // namespace tutti::test::ranks
