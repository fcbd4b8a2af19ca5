// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

#include <gtest/gtest.h>

/// Ranks that are stopped or killed wherever they are in a stream of calls.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Makes calls, each waited for, until one fails; what that says. Rank 1 gets the signal on the way.
std::string failure_of_calls(Exchange& exchange, int hosts, std::int64_t count, int signal) {
  pretend_host(exchange.rank() % hosts);
  Communicator communicator = make_patient(exchange);
  const Tensor tensor = some_tensor(count);
  communicator.barrier();
  if (exchange.rank() == 1) {
    std::thread([signal] {
      std::this_thread::sleep_for(patient(200ms));
      std::raise(signal);
    }).detach();
  }
  return failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); });
}

testing::AssertionResult names_rank_1_alone(const std::string& text) {
  for (const char* const other : {"rank 0 has", "rank 2 has"}) {
    if (text.find(other) != std::string::npos) return testing::AssertionFailure() << other << ": " << text;
  }
  return mentions(text, {"rank 1 "});
}

TEST(LostRanks, ARankStoppedWhereverItIsIsNamedAlone) {
  for (const int hosts : {1, 2}) {
    for (const std::int64_t count : {100, 1'000'000}) {
      SCOPED_TRACE(testing::Message() << hosts << " hosts, calls of " << count);
      Ranks ranks(3, [&](Exchange& exchange) {
        const std::string text = failure_of_calls(exchange, hosts, count, SIGSTOP);
        EXPECT_TRUE(names_rank_1_alone(text));
        EXPECT_TRUE(mentions(text, {within_timeout, "its process has done nothing for"}));
      });
      ranks.resume_after_others(timeout + slack, 1);
      expect_endings(ranks, {all_right, all_right, all_right});
    }
  }
}

TEST(LostRanks, ARankKilledWhereverItIsIsNamedAlone) {
  for (const int hosts : {1, 2}) {
    for (const std::int64_t count : {100, 1'000'000}) {
      SCOPED_TRACE(testing::Message() << hosts << " hosts, calls of " << count);
      Ranks ranks(3, [&](Exchange& exchange) {
        EXPECT_TRUE(names_rank_1_alone(failure_of_calls(exchange, hosts, count, SIGKILL)));
      });
      expect_endings(ranks, {all_right, killed, all_right});
    }
  }
}

}  // namespace
}  // namespace tutti::test::ranks
