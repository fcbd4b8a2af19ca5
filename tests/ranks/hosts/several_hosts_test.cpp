// SPDX-License-Identifier: Apache-2.0
#include "backend/team_round.hpp"
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/hosts/host_proxy.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/team.hpp"
#include "tutti/communicator.hpp"
#include "tutti/grow_options.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Ranks of several hosts: what they cannot do, and what all of them hear of ranks that die, stop, or do
/// something else than the others.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(SeveralHosts, AreRefusedByNameWithoutANetwork) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    ExchangeWithoutNetwork without(exchange);
    EXPECT_TRUE(refuses([&] { make(without); }, ErrorCode::unsupported,
                        {"rank 1", "'host 1'", "'host 0'", "no network"}));
  });
}

TEST(SeveralHosts, CannotReachOneAnothersMemory) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    EXPECT_TRUE(refuses(
        [&] {
          const Communicator refused(exchange, {.devices = {Device(0)}, .transport = TransportKind::p2p});
        },
        ErrorCode::unsupported, {"p2p", "2 hosts"}));
    Communicator communicator = make(exchange);
    EXPECT_TRUE(mentions(communicator.explain(), {"2 hosts", "'host 0' (ranks 0)", "'host 1' (ranks 1)",
                                                  is_over_tcp() ? "TCP" : "pipes"}));
  });
}

/// Over TCP they may shrink (`shrinking_hosts_test.cpp`).
TEST(SeveralHosts, GrowByHostAlone) {
  const MeetingPoint point{.port = 1};
  Ranks ranks(4, [&](Exchange& exchange) {
    const int host = exchange.rank() / 2;
    pretend_host(host);
    Communicator communicator = make(exchange, 60s);
    Communicator of_host = *communicator.split(host);
    const auto refuse_all = [&] {
      const auto is_refused = [&](const char* function, const std::function<void()>& call) {
        return refuses(call, ErrorCode::unsupported, {function, "the ranks are on 2 hosts", "`split`"});
      };
      if (!is_over_tcp()) {
        EXPECT_TRUE(is_refused("Communicator::shrink", [&] { static_cast<void>(communicator.shrink()); }));
      }
      EXPECT_TRUE(is_refused("Communicator::grow",
                             [&] { static_cast<void>(communicator.grow({.meeting_point = point})); }));
      EXPECT_TRUE(is_refused("Communicator::replace",
                             [&] { static_cast<void>(communicator.replace({.meeting_point = point})); }));
    };
    refuse_all();
    communicator.barrier();
    synchronize(0);
    communicator.check();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 3) std::raise(SIGKILL);
    await_end(communicator);
    refuse_all();
    if (host == 1) {
      await_end(of_host);
      of_host = of_host.shrink();
    }
    expect_works(of_host, host == 1 ? 0 : exchange.rank(), 2 - host);
  });
  expect_endings(ranks, {all_right, all_right, all_right, killed});
}

TEST(SeveralHosts, AKilledRankEndsTheCallsOnAllHosts) {
  // Rank 1 has a neighbour on its host, who sees it go, and rank 2 hears of it.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange, 60s);
    const Tensor tensor = some_tensor();
    for (int call = 0; call < 5; ++call) communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
    EXPECT_LT(watch.elapsed(), slack);
    // TCP may tell before the call is made.
    EXPECT_TRUE(mentions(text, {"rank 1", "is gone", is_over_tcp() ? "" : "all_reduce"}));
    EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::peer_unavailable, {"rank 1", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(SeveralHosts, ARankThatWasAloneOnItsHostIsNamedWithinTheTimeout) {
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
    EXPECT_LT(watch.elapsed(), timeout + slack);
    if (is_over_tcp()) {
      EXPECT_TRUE(mentions(text, {"rank 1 is gone"}));
      return;
    }
    EXPECT_TRUE(mentions(text, {within_timeout, "rank 1 has not made it", "its last call is all_reduce"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(SeveralHosts, ARankThatLeavesInsteadOfMakingACallEndsIt) {
  expect_that_who_leaves_ends_calls(2);
}

TEST(SeveralHosts, WhoLeavesWaitsForThoseWhoAreLateWithItsCalls) {
  expect_that_who_leaves_waits_for_late_ranks(2);
}

TEST(SeveralHosts, AStoppedRankIsNamedAndNotThoseWhoseWordsItHandsOn) {
  // What rank 0 sends to the other host goes to rank 1.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() == 0 ? 0 : 1);
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGSTOP);
    const std::string text = failure_of(0, [&] { communicator.reduce_add({tensor}, {tensor}, 0); });
    if (exchange.rank() == 1) return;
    EXPECT_TRUE(mentions(text, {"all_reduce", within_timeout, "rank 1 has not made it"}));
    EXPECT_EQ(text.find("rank 0 has not made it"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 2 has not made it"), std::string::npos) << text;
  });
  ranks.resume_after_others(2 * timeout + slack, 1);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST(SeveralHosts, CallsThatDifferEndOnAllRanksWithBothSignatures) {
  for (const bool are_alternating : {false, true}) {
    expect_all_right(4, [&](Exchange& exchange) {
      pretend_host(are_alternating ? exchange.rank() % 2 : exchange.rank() / 2);
      Communicator communicator = make(exchange);
      const Stopwatch watch;
      const std::string text =
          failure_of(0, [&] { communicator.broadcast({some_tensor(exchange.rank() < 2 ? 10 : 20)}, 0); });
      EXPECT_LT(watch.elapsed(), timeout + slack);
      EXPECT_TRUE(mentions(text, {"does not match", "10 float32", "20 float32"}));
    });
  }
}

TEST(SeveralHosts, MessagesThatDifferEndOnAllHostsWithBothSides) {
  expect_all_right(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange, 60s);
    try {
      for (int i = 0; i < 20; ++i) {
        if (exchange.rank() == 0) communicator.send(some_tensor(i == 18 ? 10 : 7), 3);
        if (exchange.rank() == 3) communicator.recv(some_tensor(7), 0);
      }
    } catch (const Error& error) {  // of whoever comes second
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::invalid_argument,
                        {"message #19 from member 0 to member 3 does not match", "rank 0 sends 10 float32",
                         "rank 3 receives 7 float32"}));
  });
}

TEST(SeveralHosts, AMessageOfARankThatIsGoneEndsOnAllHosts) {
  // Rank 1 has a neighbour on its host, who sees it go.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange, 60s);
    if (exchange.rank() == 1) communicator.send(some_tensor(), 2);
    if (exchange.rank() == 2) communicator.recv(some_tensor(), 1);
    communicator.barrier();
    synchronize(0);
    transport::team::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] {
      if (exchange.rank() == 2) return communicator.recv(some_tensor(), 1);
      communicator.barrier();
    });
    EXPECT_LT(watch.elapsed(), slack);
    EXPECT_TRUE(mentions(text, {"rank 1", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(SeveralHosts, AMessageThatNobodySendsNamesItsSender) {
  expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange);
    communicator.barrier();
    if (exchange.rank() == 2) communicator.recv(some_tensor(), 0);
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::timeout,
                        {"message #1 from member 0 to member 2 did not finish on rank 2 " + within_timeout,
                         "rank 0 has not come to send"}));
  });
}

TEST(SeveralHosts, WhoLeavesWithoutItsSideOfAMessageEndsItAndWhoHasSentWaitsForItsReader) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange, 60s);
    const Tensor tensor = full({10}, exchange.rank(), {.dtype = DType::int32, .device = 0});
    if (exchange.rank() == 1) return communicator.send(tensor, 0);  // and leaves
    std::this_thread::sleep_for(300ms);
    communicator.recv(tensor, 1);
    EXPECT_EQ(tensor.to_vector<std::int32_t>().front(), 1);
    const std::string text = failure_of(0, [&] { communicator.recv(tensor, 1); });
    EXPECT_TRUE(mentions(text, {"rank 1 has left without message #2 from member 1 to member 0"}));
  });
}

TEST(SeveralHosts, AbortEndsWaitsOnAllHosts) {
  expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange, 60s);
    if (exchange.rank() == 2) {
      std::this_thread::sleep_for(patient(300ms));
      communicator.abort("enough");
    }
    const Stopwatch watch;
    const std::string text =
        failure_of(0, [&] { communicator.all_reduce_add({some_tensor()}, {some_tensor()}); });
    EXPECT_LT(watch.elapsed(), slack);
    EXPECT_TRUE(mentions(text, {"rank 2 gave up: enough"}));
  });
}

TEST(SeveralHosts, ALateRankInTimeGetsTheRightResult) {
  expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    Communicator communicator = make(exchange, 10 * timeout);  // the bytes take their time as well
    const std::int64_t count = scaled(3'000'000);              // which takes as long under sanitizers
    const Tensor tensor = some_tensor(count);
    for (int call = 1; call <= 3; ++call) {
      if (exchange.rank() == 0) tensor.fill_(call);
      if (exchange.rank() == call % 3) std::this_thread::sleep_for(timeout / 3);
      communicator.broadcast({tensor}, 0);
      const auto values = tensor.to_vector<float>();
      EXPECT_EQ(std::ranges::count(values, static_cast<float>(call)), count);
    }
  });
}

TEST(SeveralHosts, ARankThatLeavesWaitsForThoseWhoNeedItsHostProxy) {
  expect_all_right(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    if (exchange.rank() == 0) tensor.fill_(7);
    communicator.broadcast({tensor}, 0);
    // The root is through long before the others begin.
    if (exchange.rank() != 0) std::this_thread::sleep_for(timeout / 3);
    if (exchange.rank() == 3) {
      EXPECT_EQ(tensor.to_vector<float>()[0], 7.0F);
    }
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(SeveralHosts, AnIdleTeamLeavesTheProcessorAlone) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
    const auto used = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    std::this_thread::sleep_for(100ms);
    const auto before = used();
    std::this_thread::sleep_for(1s);
    EXPECT_LT(used() - before, 200ms);
  });
}

TEST(SeveralHosts, TheFlightRecordTellsOfAllHosts) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange);
    communicator.broadcast({some_tensor(123)}, 1);
    communicator.barrier();
    synchronize(0);
    const Stopwatch watch;
    for (;;) {
      const auto record = nlohmann::json::parse(communicator.flight_record());
      const auto& other = record["ranks"][exchange.rank() == 0 ? 1U : 0U];
      EXPECT_EQ(other["host"], fmt::format("host {}", 1 - exchange.rank()));
      // It comes when it comes: this rank has no need of the other's last word.
      const bool is_there = other["calls"].size() == 2 && other["calls"][1]["completed"] == true;
      if (is_there) {
        EXPECT_TRUE(mentions(other["calls"][0]["call"], {"broadcast of 123 float32"}));
        break;
      }
      ASSERT_LT(watch.elapsed(), slack);
    }
  });
}

TEST(SeveralHosts, NothingIsLeftBehind) {
  expect_nothing_left_behind(2);
}

}  // namespace
}  // namespace tutti::test::ranks
