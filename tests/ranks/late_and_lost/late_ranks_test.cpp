// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "tutti/communicator.hpp"
#include "tutti/event.hpp"
#include "tutti/message.hpp"
#include "tutti/patience.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Ranks of one host that are late, stop, or get far ahead of others: who is waited for, and for how long.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(LateRanks, AStoppedRankIsWaitedForAndThenNamed) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    if (exchange.rank() == 1) std::raise(SIGSTOP);
    const Stopwatch watch;
    const std::string text = failure_of(0, [&] { communicator.reduce_add({tensor}, {tensor}, 0); });
    EXPECT_TRUE(exchange.rank() == 1 ||
                watch.elapsed() >= timeout);  // no time passed for the one that was stopped
    EXPECT_LT(watch.elapsed(), timeout + slack);
    EXPECT_TRUE(mentions(text, {"all_reduce", within_timeout, "rank 1 has not made it",
                                "its last call is all_reduce", "its process has done nothing for"}));
    EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::timeout, {"rank 1"}));
  });
  ranks.resume_after_others(timeout + slack, 1);  // hears of it as soon as it goes on
  expect_endings(ranks, {all_right, all_right});
}

TEST(LateRanks, ALateRankInTimeGetsTheRightResult) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(100'000);
    if (exchange.rank() == 0) tensor.fill_(7);
    if (exchange.rank() == 1) std::this_thread::sleep_for(timeout / 2);
    communicator.broadcast({tensor}, 0);
    const auto values = tensor.to_vector<float>();
    EXPECT_EQ(std::ranges::count(values, 7.0F), 100'000);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LateRanks, ARankThatIsLateForLongerThanTheTimeoutIsWaitedForAsItLives) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make_patient(exchange);
    const Tensor tensor = full({100'000}, 1, {.device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    if (exchange.rank() == 1) std::this_thread::sleep_for(2 * timeout);
    communicator.all_reduce_add({tensor}, {tensor});
    EXPECT_EQ(std::ranges::count(tensor.to_vector<float>(), 4.0F), 100'000);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LateRanks, ARankThatIsLateForLongerThanThePatienceIsNamed) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator(exchange,
                              {.devices = {Device(0)}, .timeout = hang_limit(), .patience = timeout});
    communicator.barrier();
    synchronize(0);
    expect_named_as_missing(exchange, communicator, timeout, {"all_reduce", "its last call is barrier (#1)"});
  });
}

TEST(LateRanks, ACallMayBeMorePatientThanTheCommunicatorOrLess) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = full({1000}, 1, {.device = 0});
    const Tensor out = zeros({2000}, {.device = 0});
    communicator.barrier();
    synchronize(0);
    const auto be_late = [&](std::chrono::milliseconds time) {
      if (exchange.rank() == 1) std::this_thread::sleep_for(time);
    };
    be_late(timeout + timeout / 2);
    {
      const PatienceGuard patience(hang_limit());
      communicator.all_reduce_add({tensor}, {tensor});
      EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 2.0F));
      be_late(timeout + timeout / 2);
      communicator.gather({tensor}, exchange.rank() == 0 ? out : Tensor(), 0);  // waits on the host
      synchronize(0);
    }
    const std::chrono::milliseconds shorter = timeout / 4;
    const PatienceGuard impatience(shorter);
    transport::team::synchronize(exchange);
    be_late(timeout);
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
    EXPECT_TRUE(mentions(text, {within(shorter), "rank 1 has not made it"}));
  });
}

TEST(LateRanks, WhoLeavesWaitsForThoseWhoAreLateWithItsCalls) {
  expect_that_who_leaves_waits_for_late_ranks(1);
}

/// Own work of this rank, on its current stream.
void work_for(std::chrono::milliseconds time) {
  Runtime::get().backend().launch_host_function(
      StreamAccess::ref(current_stream(0)),
      [](void* argument) {
        const std::unique_ptr<std::chrono::milliseconds> given(
            static_cast<std::chrono::milliseconds*>(argument));
        std::this_thread::sleep_for(*given);
      },
      new std::chrono::milliseconds(time));
}

TEST(LateRanks, AHostThatIsAlwaysACallAheadIsNotLate) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, patient(400ms));
    const Tensor tensor = some_tensor(0);
    Event previous;
    for (int call = 0; call < 60; ++call) {
      work_for(patient(20ms));
      communicator.broadcast({tensor}, 0);  // of nothing: no rounds
      Event now;
      now.record();
      if (call > 0) previous.synchronize();
      previous = std::move(now);
    }
    synchronize(0);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LateRanks, AHostThatIsFarAheadIsNotLate) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, patient(500ms));
    const Tensor tensor = some_tensor();
    for (int call = 0; call < 25; ++call) {
      work_for(patient(50ms));
      communicator.all_reduce_add({tensor}, {tensor});
    }
    synchronize(0);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LateRanks, ARankAloneIsNotLateHoweverLongItWorks) {
  expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator = make(exchange, patient(200ms));
    const Tensor tensor = some_tensor();
    work_for(patient(800ms));
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LateRanks, WhoHasGotTooFarAheadNamesTheRankThatIsBehind) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor nothing = some_tensor(0);  // nobody waits for data
    if (exchange.rank() == 2) std::this_thread::sleep_for(2 * timeout);
    const std::string text = failure_of(0, [&] {
      for (std::size_t call = 0; call < transport::team::RankStatus::history; ++call)
        communicator.broadcast({nothing}, 0);
    });
    EXPECT_TRUE(mentions(text, {within_timeout, "rank 2 has not made it, its last call is nothing yet"}));
    EXPECT_EQ(text.find("rank 0 has not made it"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 1 has not made it"), std::string::npos) << text;
  });
}

TEST(LateRanks, AreNamedWithTheMessageThatTheyHaveMadeLast) {
  constexpr int made = 20;
  for (const int hosts : {1, 2}) {
    expect_all_right(2, [hosts](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      Communicator communicator = make(exchange);
      const Tensor tensor = some_tensor(4);
      const bool sends = exchange.rank() == 0;
      communicator.barrier();
      for (int i = 0; i < made; ++i) sends ? communicator.send(tensor, 1) : communicator.recv(tensor, 0);
      if (!sends) communicator.batch_send_recv({Message::recv(tensor, 0)});
      expect_end(communicator, ErrorCode::timeout,
                 {"rank 0 has not come to send message #21 from member 0 to member 1, its last call is "
                  "send of message #20 from member 0 to member 1"});
    });
  }
}

TEST(LateRanks, AreNamedWithACallBehindTheirMessages) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(4);
    const bool sends = exchange.rank() == 0;
    sends ? communicator.send(tensor, 1) : communicator.recv(tensor, 0);
    communicator.barrier();
    if (sends) communicator.barrier();
    expect_end(communicator, ErrorCode::timeout, {"rank 1 has not made it, its last call is barrier (#1)"});
  });
}

}  // namespace
}  // namespace tutti::test::ranks
