// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"

#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/event.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Ranks of one host that die, leave, or cannot join: all others must hear who and what, in time.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(LostRanks, AKilledRankEndsTheCallsOfAllOthers) {
  Ranks ranks(3, [](Exchange& exchange) {
    auto communicator = std::make_unique<Communicator>(make(exchange, hang_limit()));
    const Tensor tensor = some_tensor();
    for (int call = 0; call < 5; ++call) communicator->all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] { communicator->all_reduce_add({tensor}, {tensor}); });
    EXPECT_TRUE(mentions(text, {"rank 1", "is gone", "all_reduce"}));
    EXPECT_FALSE(communicator->is_running());
    EXPECT_TRUE(
        refuses([&] { communicator->barrier(); }, ErrorCode::peer_unavailable, {"rank 1", "is gone"}));
    EXPECT_LT(watch.elapsed(), slack);
    EXPECT_LT(time_of([&] { communicator.reset(); }), slack) << "nobody waits for a rank that is gone";
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(LostRanks, AreNamedByLaunchesOfWhatIsBound) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = some_tensor();
    PersistentCollective bound =
        communicator.persistent([&communicator, tensor] { communicator.all_reduce_add({tensor}, {tensor}); });
    bound.launch();
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    EXPECT_TRUE(mentions(failure_of(0, [&] { bound.launch(); }), {"rank 1", "is gone"}));
    EXPECT_LT(watch.elapsed(), slack);
  });
  expect_endings(ranks, {all_right, killed});
}

TEST(LostRanks, NobodyWaitsForARankThatIsKilledWhileItLeaves) {
  Ranks ranks(2, [](Exchange& exchange) {
    auto communicator = std::make_unique<Communicator>(make(exchange, hang_limit()));
    communicator->barrier();
    synchronize(0);
    if (exchange.rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(patient(300ms));
        std::raise(SIGKILL);
      }).detach();
      communicator.reset();
      std::this_thread::sleep_for(hang_limit());
    }
    std::this_thread::sleep_for(patient(600ms));
    EXPECT_LT(time_of([&] { communicator.reset(); }), slack);
  });
  expect_endings(ranks, {all_right, killed});
}

/// Rank 1 `ends` the communicator instead of making a call that rank 0 makes, and then waits for in each of
/// all ways: once, each of them says what has ended it.
void expect_told_by_every_wait(const std::function<void(Communicator&)>& end, ErrorCode code,
                               const std::string& text, const Ending& ending_of_rank_1) {
  const std::vector<std::function<void(const Tensor&)>> waits{
      [](const Tensor&) { synchronize(0); }, [](const Tensor&) { current_stream(0).synchronize(); },
      [](const Tensor&) {
        Event event;
        event.record();
        event.synchronize();
      },
      [](const Tensor&) { EXPECT_TRUE(becomes_true([] { return current_stream(0).query(); })); },
      [](const Tensor& tensor) { static_cast<void>(tensor.to_vector<float>()); }};
  for (std::size_t wait = 0; wait < waits.size(); ++wait) {
    SCOPED_TRACE(testing::Message() << "wait " << wait);
    Ranks ranks(2, [&](Exchange& exchange) {
      Communicator communicator = make(exchange);
      const Tensor tensor = some_tensor();
      communicator.all_reduce_add({tensor}, {tensor});
      EXPECT_NO_THROW(synchronize(0));
      if (exchange.rank() == 0) communicator.all_reduce_add({tensor}, {tensor});
      transport::team::synchronize(exchange);
      if (exchange.rank() == 1) return end(communicator);
      EXPECT_TRUE(refuses([&] { waits[wait](tensor); }, code, {text}));
      try {
        synchronize(0);
      } catch (const Error&) {
        // On virtual devices a later part of the same call may have its own end to tell.
      }
      EXPECT_NO_THROW(synchronize(0)) << "it has been told";
    });
    expect_endings(ranks, {all_right, ending_of_rank_1});
  }
}

TEST(LostRanks, WaitingForACallThatTookTooLongSaysSo) {
  expect_told_by_every_wait(
      [](Communicator& communicator) {
        EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
      },
      ErrorCode::timeout, within_timeout, all_right);
}

TEST(LostRanks, WaitingForACallWithARankThatIsGoneSaysSo) {
  expect_told_by_every_wait([](Communicator&) { std::raise(SIGKILL); }, ErrorCode::peer_unavailable,
                            "is gone", killed);
}

TEST(LostRanks, WaitingForACallThatWasAbortedSaysSo) {
  expect_told_by_every_wait([](Communicator& communicator) { communicator.abort("enough"); },
                            ErrorCode::aborted, "enough", all_right);
}

TEST(LostRanks, WaitingForCallsThatWereOverSaysNothing) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) communicator.abort("enough");
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    EXPECT_NO_THROW(synchronize(0));
    transport::team::synchronize(exchange);
  });
}

TEST(LostRanks, ARankKilledWithWorkUnderWayIsNoticedToo) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(5'000'000);
    const Stopwatch watch;
    if (exchange.rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(patient(300ms));
        std::raise(SIGKILL);
      }).detach();
    }
    const std::string text = failure_of(0, [&] { communicator.broadcast({tensor}, 1); });
    EXPECT_LT(watch.elapsed(), patient(300ms) + timeout + slack);
    EXPECT_TRUE(mentions(text, {"rank 1", "is gone", "broadcast"}));
  });
  expect_endings(ranks, {all_right, killed});
}

TEST(LostRanks, ARankThatExitsWithoutLeavingIsNoticed) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    if (exchange.rank() == 0) _exit(0);
    const std::string text = failure_of(0, [&] { communicator.barrier(); });
    EXPECT_TRUE(mentions(text, {"rank 0", "is gone", "nothing yet"}));
  });
  expect_endings(ranks, {all_right, all_right});
}

TEST(LostRanks, ARankThatLeavesInOrderDisturbsNobody) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
    if (exchange.rank() == 0) return;
    std::this_thread::sleep_for(patient(500ms));
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LostRanks, ARankThatLeavesInsteadOfMakingACallEndsIt) {
  expect_that_who_leaves_ends_calls(1);
}

TEST(LostRanks, AbortEndsWaitsOfAllRanksAtOnce) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = some_tensor();
    std::jthread aborter;
    if (exchange.rank() == 2) {
      aborter = std::jthread([&] {
        std::this_thread::sleep_for(patient(300ms));
        const Stopwatch watch;
        communicator.abort("enough");
        EXPECT_LT(watch.elapsed(), at_once);
      });
      std::this_thread::sleep_for(patient(600ms));
    }
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
    EXPECT_LT(watch.elapsed(), slack);
    EXPECT_TRUE(mentions(text, {"rank 2 gave up: enough"}));
    EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::aborted, {"enough"}));
  });
}

TEST(LostRanks, TheFlightRecordTellsWhatEveryRankDid) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(123);
    communicator.broadcast({tensor}, 1);
    communicator.all_reduce_add({tensor}, {tensor});
    communicator.barrier();
    synchronize(0);
    nlohmann::json record;
    const auto all_have_completed = [&] {
      record = nlohmann::json::parse(communicator.flight_record());
      return std::ranges::all_of(record["ranks"], [](const auto& rank) {
        return rank["calls"].size() == 3 && rank["calls"][2]["completed"].template get<bool>();
      });
    };
    // What another rank's device has completed is heard of a little later.
    for (const Stopwatch watch; !all_have_completed() && watch.elapsed() < slack;)
      std::this_thread::sleep_for(1ms);
    EXPECT_EQ(record["schema"], "tutti-flight-record/1");
    EXPECT_TRUE(record["aborted"].is_null());
    ASSERT_EQ(record["ranks"].size(), 2U);
    for (const auto& rank : record["ranks"]) {
      ASSERT_EQ(rank["calls"].size(), 3U);
      EXPECT_EQ(rank["calls"][0]["sequence"], 1);
      EXPECT_TRUE(mentions(rank["calls"][0]["call"], {"broadcast of 123 float32", "root 1"}));
      EXPECT_TRUE(mentions(rank["calls"][1]["call"], {"all_reduce"}));
      EXPECT_EQ(rank["calls"][2]["completed"], true);
    }
    EXPECT_EQ(record["ranks"][static_cast<std::size_t>(exchange.rank())]["process"], getpid());
  });
}

TEST(LostRanks, TheFlightRecordIsTextWhateverTheReasonIs) {
  std::string umlauts = "x";
  for (int i = 0; i < 5000; ++i) umlauts += "\xc3\xa4";
  for (const std::string& reason : {std::string("caf\xe9"), umlauts, umlauts.substr(1)}) {
    expect_all_right(1, [&](Exchange& exchange) {
      Communicator communicator = make(exchange);
      communicator.abort(reason);
      const auto record = nlohmann::json::parse(communicator.flight_record());
      EXPECT_TRUE(mentions(record["aborted"], {"rank 0 gave up", reason.substr(0, 3)}));
    });
  }
}

TEST(LostRanks, AHostMayHaveANameOfAnyBytes) {
  expect_all_right(2, [](Exchange& exchange) {
    setenv("TUTTI_HOST_ID", "caf\xe9", 1);
    Communicator communicator = make(exchange);
    if (exchange.rank() == 1) std::this_thread::sleep_for(2 * timeout);  // the other one writes to the log
    const std::string text = failure_of(0, [&] { communicator.barrier(); });
    EXPECT_TRUE(mentions(text, {within_timeout, "rank 1 has not made it"}));
  });
}

TEST(LostRanks, WhoCannotJoinFailsForAll) {
  expect_all_right(3, [](Exchange& exchange) {
    auto machine = virtual_devices::VirtualMachine::from_topology("island", 1);
    virtual_devices::start(machine);
    // Registering the shared memory fails on one rank.
    if (exchange.rank() == 1) {
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_pinned,
                               .kind = virtual_devices::FaultKind::fail});
    }
    EXPECT_TRUE(refuses([&] { make(exchange); }, ErrorCode::peer_unavailable, {"rank 1:", "register"}));
    Communicator communicator = make(exchange);  // the fault was for once
    communicator.barrier();
    synchronize(0);
  });
}

TEST(LostRanks, RanksThatPlanDifferentlyAreRefused) {
  expect_all_right(2, [](Exchange& exchange) {
    const auto determinism = exchange.rank() == 0 ? Determinism::bitwise : Determinism::fastest;
    EXPECT_TRUE(refuses(
        [&] { const Communicator refused(exchange, {.devices = {Device(0)}, .determinism = determinism}); },
        ErrorCode::invalid_argument, {"options.determinism is fastest on rank 1", "bitwise as on rank 0"}));
  });
}

TEST(LostRanks, RanksWithDifferentEnvironmentsAreRefused) {
  expect_all_right(2, [](Exchange& exchange) {
    if (exchange.rank() == 1) setenv("TUTTI_TRANSPORT", "staged", 1);
    const auto transport = exchange.rank() == 0 ? TransportKind::p2p : TransportKind::automatic;
    EXPECT_TRUE(refuses(
        [&] { const Communicator refused(exchange, {.devices = {Device(0)}, .transport = transport}); },
        ErrorCode::invalid_argument,
        {"options.transport is staged (by TUTTI_TRANSPORT) on rank 1, expected p2p as on rank 0"}));
  });
}

TEST(LostRanks, ATimeoutMayBeShort) {
  const std::chrono::milliseconds shortest = patient(50ms);
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, shortest);
    expect_named_as_missing(exchange, communicator, shortest, {});
  });
}

TEST(LostRanks, ATimeoutMayBeAsLongAsThereIs) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, std::chrono::milliseconds::max());
    const Tensor tensor = full({1000}, 1, {.device = 0});
    if (exchange.rank() == 1) std::this_thread::sleep_for(patient(100ms));
    communicator.all_reduce_add({tensor}, {tensor});
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 2.0F));
  });
}

TEST(LostRanks, ARankWithoutMemoryForACallMayMakeItAgain) {
  expect_all_right(2, [](Exchange& exchange) {
    virtual_devices::start(virtual_devices::VirtualMachine::from_topology("island", 1));
    Communicator communicator = make(exchange, hang_limit());
    const Tensor strided = ones({3000, 2000}, {.device = 0}).transpose(0, 1);  // goes through a dense copy
    const Tensor out = zeros({2000, 3000}, {.device = 0});
    synchronize(0);
    empty_cache();
    const std::size_t in_use = memory_allocated(0);
    if (exchange.rank() == 1) {
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_device,
                               .kind = virtual_devices::FaultKind::fail,
                               .count = 10});  // the allocator tries again when it has emptied its cache
      EXPECT_THROW(communicator.all_reduce_add({strided}, {out}), OutOfMemoryError);
      virtual_devices::clear_faults();
      EXPECT_EQ(memory_allocated(0), in_use);
      EXPECT_EQ(out.to_vector<float>()[0], 0.0F);
    }
    communicator.all_reduce_add({strided}, {out});
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(6'000'000, 2.0F));
  });
}

TEST(LostRanks, ARankWithBadOptionsIsNamedToTheOthers) {
  expect_all_right(3, [](Exchange& exchange) {
    const Stopwatch watch;
    CommunicatorOptions options{.devices = {Device(0)}};
    if (exchange.rank() == 1) options.window_bytes = 1000;
    const auto refused = [&] { const Communicator communicator(exchange, options); };
    if (exchange.rank() == 1) {
      EXPECT_TRUE(refuses(refused, ErrorCode::invalid_argument, {"options.window_bytes is 1000"}));
    } else {
      EXPECT_TRUE(refuses(refused, ErrorCode::peer_unavailable, {"rank 1:", "options.window_bytes is 1000"}));
    }
    EXPECT_LT(watch.elapsed(), slack);
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
  });
}

TEST(LostRanks, NothingIsLeftBehind) {
  expect_nothing_left_behind(1);
}

}  // namespace
}  // namespace tutti::test::ranks
