// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "ranks/shrinking/deaths.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"
#include "support/shared_object.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Ranks of several hosts, which messages over TCP connect, that go on as a smaller communicator. Those of
/// the host of rank 0 decide.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

std::chrono::milliseconds short_timeout() {
  return patient(500ms);
}

/// Makes a communicator of ranks, two of which are on each host.
Communicator make_in_pairs(Exchange& exchange, std::chrono::milliseconds limit = hang_limit()) {
  pretend_host(exchange.rank() / 2);
  return make(exchange, limit);
}

class ShrinkingHosts : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(is_over_tcp()); }
};

/// Has ranks be killed, and expects the others to go on, soon.
void expect_to_go_on_without(int count, const std::vector<int>& victims) {
  SCOPED_TRACE(testing::Message() << "without " << testing::PrintToString(victims));
  Ranks ranks(count, [&](Exchange& exchange) {
    Communicator communicator = make_in_pairs(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);
    const int rank = exchange.rank();
    if (std::ranges::find(victims, rank) != victims.end()) std::raise(SIGKILL);
    const Stopwatch watch;
    static_cast<void>(failure_of(0, [&] { communicator.all_reduce({tensor}, {tensor}); }));
    communicator = communicator.shrink();
    communicator.all_reduce({tensor}, {tensor});
    synchronize(0);
    EXPECT_LT(watch.elapsed(), slack);
    if (rank == count - 1)
      std::printf("%d ranks: %lld ms\n", count, static_cast<long long>(watch.elapsed() / 1ms));
    const auto before = std::ranges::count_if(victims, [&](int victim) { return victim < rank; });
    expect_works(communicator, rank - static_cast<int>(before), count - static_cast<int>(victims.size()));
  });
  std::vector<Ending> endings(static_cast<std::size_t>(count), all_right);
  for (const int victim : victims) endings[static_cast<std::size_t>(victim)] = killed;
  expect_endings(ranks, endings);
}

TEST_F(ShrinkingHosts, GoOnWithoutKilledRanks) {
  expect_to_go_on_without(4, {3});
  expect_to_go_on_without(4, {0});
  expect_to_go_on_without(6, {1, 2});
}

TEST_F(ShrinkingHosts, GoOnWithoutAHost) {
  expect_to_go_on_without(4, {2, 3});
  expect_to_go_on_without(6, {2, 3});
  expect_to_go_on_without(6, {0, 2, 3, 5});
}

TEST_F(ShrinkingHosts, ShrinkAgainByTheHostThatHasRank0Then) {
  const SharedObject<std::atomic<int>> have_worked;
  Ranks ranks(4, [&](Exchange& exchange) {
    const int rank = exchange.rank();
    pretend_host(rank % 2);
    Communicator communicator = make(exchange, hang_limit());
    communicator.barrier();
    synchronize(0);
    transport::team::synchronize(exchange);
    if (rank == 0) std::raise(SIGKILL);
    await_end(communicator);
    communicator = communicator.shrink();
    expect_works(communicator, rank - 1, 3);
    ++*have_worked;
    if (rank == 2) {  // the last one of the host that has decided
      EXPECT_TRUE(becomes_true([&] { return have_worked->load() == 3; }));
      std::raise(SIGKILL);
    }
    await_end(communicator);
    communicator = communicator.shrink();
    expect_works(communicator, rank / 2, 2);
  });
  expect_endings(ranks, {killed, all_right, killed, all_right});
}

/// A rank that decides ends its part of the former communicator at once; the others hear of its decision.
TEST_F(ShrinkingHosts, HearWhatARankHasDecidedThatHasGoneOn) {
  expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() == 0 ? 0 : 1);
    Communicator communicator = make(exchange, hang_limit());
    for (int round = 0; round < 30; ++round) communicator = communicator.shrink();
    expect_works(communicator, exchange.rank(), 3);
  });
}

TEST_F(ShrinkingHosts, DoNotGoOnWithoutTheRanksThatDecide) {
  Ranks ranks(4, [](Exchange& exchange) {
    Communicator communicator = make_in_pairs(exchange);
    communicator.barrier();
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() < 2) std::raise(SIGKILL);
    await_end(communicator);
    const Stopwatch watch;
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink()); }, ErrorCode::peer_unavailable,
                        {"Communicator::shrink", "the ranks of the host of rank 0", "are lost"}));
    EXPECT_LT(watch.elapsed(), slack);
  });
  expect_endings(ranks, {killed, killed, all_right, all_right});
}

TEST_F(ShrinkingHosts, GoOnWithoutRanksThatAreNamed) {
  expect_all_right(6, [](Exchange& exchange) {
    Communicator communicator = make_in_pairs(exchange);
    const int rank = exchange.rank();
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(communicator.shrink({.leaving = {0, 1, 5}}));
        },
        ErrorCode::unsupported, {"options.leaving has all ranks of the host of rank 0"}));
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce({tensor}, {tensor});
    Communicator smaller = communicator.shrink({.leaving = {0, 4, 5}});
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(10'000, 6.0F)) << "calls are waited for";
    if (rank == 0 || rank > 3) {
      EXPECT_FALSE(smaller);
      return await_end(communicator);
    }
    expect_works(smaller, rank - 1, 3);
  });
}

TEST_F(ShrinkingHosts, NameWhoIsLateOnAllRanksAndMayTryAgain) {
  for (const int late : {0, 3}) {
    SCOPED_TRACE(late);
    expect_all_right(4, [late](Exchange& exchange) {
      Communicator communicator = make_in_pairs(exchange);
      const int rank = exchange.rank();
      if (rank == 1) communicator.abort("of a test");
      await_end(communicator);
      if (rank != late) {
        EXPECT_TRUE(refuses(
            [&] { static_cast<void>(communicator.shrink({.timeout = short_timeout()})); }, ErrorCode::timeout,
            {"shrink: rank " + std::to_string(late) + " did not come", within(short_timeout())}));
      }
      transport::team::synchronize(exchange);
      communicator = communicator.shrink();
      expect_works(communicator, rank, 4);
    });
  }
}

TEST_F(ShrinkingHosts, LeaveOutWhoIsLateByChoice) {
  for (const int late : {0, 3}) {
    SCOPED_TRACE(late);
    expect_all_right(4, [late](Exchange& exchange) {
      Communicator communicator = make_in_pairs(exchange);
      const ShrinkOptions options{.late = LateRanks::leave_out, .timeout = short_timeout()};
      const int rank = exchange.rank();
      if (rank == 1) communicator.abort("of a test");
      await_end(communicator);
      if (rank == late) {
        transport::team::synchronize(exchange);
        EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink(options)); }, ErrorCode::timeout,
                            {"went on without rank " + std::to_string(late)}));
        return transport::team::synchronize(exchange);
      }
      Communicator smaller = communicator.shrink(options);
      expect_works(smaller, rank - (late == 0 ? 1 : 0), 3);
      transport::team::synchronize(exchange);
      transport::team::synchronize(exchange);
    });
  }
}

TEST_F(ShrinkingHosts, RefuseWishesThatDiffer) {
  expect_all_right(4, [](Exchange& exchange) {
    Communicator communicator = make_in_pairs(exchange);
    const int rank = exchange.rank();
    for (const int other : {1, 3}) {
      const LateRanks late = rank == other ? LateRanks::leave_out : LateRanks::fail;
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink({.late = late})); },
                          ErrorCode::invalid_argument, {"options.late differs"}));
      transport::team::synchronize(exchange);
    }
    const std::vector<int> leaving = rank == 2 ? std::vector<int>{} : std::vector<int>{3};
    if (rank != 3) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink({.leaving = leaving})); },
                          ErrorCode::invalid_argument, {"options.leaving is", "nobody", "rank 3"}));
    }
    transport::team::synchronize(exchange);
    expect_works(communicator, rank, 4);
  });
}

TEST_F(ShrinkingHosts, GoOnWithoutARankThatIsStoppedIfThatIsAllowed) {
  for (const int stopped : {1, 2}) {
    SCOPED_TRACE(stopped);
    Ranks ranks(4, [stopped](Exchange& exchange) {
      Communicator communicator = make_in_pairs(exchange, short_timeout());
      const ShrinkOptions options{.late = LateRanks::leave_out, .timeout = 2 * short_timeout()};
      const int rank = exchange.rank();
      if (rank == stopped) {
        std::raise(SIGSTOP);
        await_end(communicator);
        EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink(options)); }, ErrorCode::timeout,
                            {"went on without rank " + std::to_string(stopped)}));
        return;
      }
      const Tensor tensor = some_tensor();
      static_cast<void>(failure_of(0, [&] { communicator.all_reduce({tensor}, {tensor}); }));
      communicator = communicator.shrink(options);
      expect_works(communicator, rank - (rank > stopped ? 1 : 0), 3);
    });
    ranks.resume_after_others(hang_limit(), stopped);
    expect_endings(ranks, {all_right, all_right, all_right, all_right});
  }
}

/// A rank of another host than the one that decides cannot make its part of the new communicator.
TEST_F(ShrinkingHosts, HearWhyARankCannotMakeTheCommunicator) {
  expect_all_right(4, [](Exchange& exchange) {
    Communicator communicator = make_in_pairs(exchange);
    const int rank = exchange.rank();
    if (rank == 0) communicator.abort("of a test");
    await_end(communicator);
    {
      std::optional<InjectedFault> fault;
      if (rank == 3)
        fault.emplace(virtual_devices::Fault{.operation = virtual_devices::Operation::allocate_pinned});
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink()); }, ErrorCode::peer_unavailable,
                          {"Communicator::shrink: not all ranks can join: rank 3: register_pinned"}));
    }
    transport::team::synchronize(exchange);
    communicator = communicator.shrink();
    expect_works(communicator, rank, 4);
  });
}

/// Returns after which time each rank is killed; never, where that is negative. One of the ranks that decide
/// stays.
Deaths random_deaths(std::mt19937_64& random, int count) {
  Deaths deaths(static_cast<std::size_t>(count), -1us);
  const int stays = static_cast<int>(random() % 2);
  const auto victims = 1 + random() % 3;
  for (std::uint64_t i = 0; i < victims; ++i) {
    const auto victim = random() % deaths.size();
    if (static_cast<int>(victim) != stays)
      deaths[victim] = patient(20ms) + std::chrono::microseconds(random() % 80'000);
  }
  return deaths;
}

TEST_F(ShrinkingHosts, SurvivorsOfKillsAtAnyTimeGoOnTogether) {
  constexpr int count = 6;
  std::mt19937_64 random(test_seed());
  for (int trial = 0; trial < scaled(6); ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Deaths deaths = random_deaths(random, count);
    const int survivors = survivors_of(deaths);
    if (survivors == count) continue;
    Ranks ranks(count, [&](Exchange& exchange) {
      Communicator communicator = make_in_pairs(exchange);
      die_as(deaths, exchange.rank());
      go_on_down_to(communicator, survivors);
    });
    expect_endings(ranks, endings_of(deaths));
  }
}

}  // namespace
}  // namespace tutti::test::ranks
