// SPDX-License-Identifier: Apache-2.0
#include "ranks/growing/growing.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/shared_object.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Ranks and spares that are killed while they make calls, and while spares take the places of others.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

constexpr int rank_count = 3;
constexpr int spare_count = 4;

/// After which time each process is killed; never, where that is negative. Spares come after ranks.
using Deaths = std::array<std::chrono::microseconds, rank_count + spare_count>;

const std::chrono::microseconds last_death = patient(100ms);

/// Draws deaths that leave a rank and enough spares.
Deaths random_deaths(std::mt19937_64& random) {
  Deaths deaths;
  deaths.fill(-1us);
  const auto die = [&](std::uint64_t process) {
    deaths.at(process) = std::chrono::microseconds(random() % static_cast<std::uint64_t>(last_death.count()));
  };
  const std::uint64_t first = random() % rank_count;
  die(first);
  if (random() % 2 == 0) die((first + 1) % rank_count);
  if (random() % 2 == 0) die(rank_count + random() % spare_count);
  return deaths;
}

void die_after(std::chrono::microseconds time) {
  if (time < 0us) return;
  std::thread([time] {
    std::this_thread::sleep_for(time);
    std::raise(SIGKILL);
  }).detach();
}

/// Makes calls until nobody dies any more, and then as many as all of the ranks make.
void go_on(Communicator& communicator, const MeetingPoint& point, const Stopwatch& watch) {
  constexpr float last_round = 3;
  for (float round = 0; round < last_round;) {
    try {
      if (!communicator.is_running()) communicator = communicator.replace({.meeting_point = point});
      const Tensor sum = full({50'000}, 1, {.dtype = DType::float32, .device = 0});
      communicator.all_reduce_add({sum}, {sum});
      const float mine = watch.elapsed() > 2 * last_death ? round + 1 : 0;
      const Tensor rounds = full({1}, mine, {.dtype = DType::float32, .device = 0});
      communicator.all_reduce({rounds}, {rounds}, ReduceOp::max);
      const float value = sum.to_vector<float>().back();
      const float reached = rounds.to_vector<float>().back();
      communicator.check();
      EXPECT_EQ(value, static_cast<float>(rank_count));
      EXPECT_EQ(communicator.rank_count(), rank_count);
      round = reached;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
    }
  }
}

TEST(GrowingFaults, SparesTakeThePlacesOfWhoIsKilledAtAnyTime) {
  const SharedObject<std::atomic<bool>> failed_spares;
  std::mt19937_64 random(test_seed());
  for (int trial = 0; trial < 6; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Deaths deaths = random_deaths(random);
    const MeetingPoint point = some_meeting_point();
    Ranks spares(spare_count, [&](Exchange& exchange) {
      const Stopwatch watch;
      die_after(deaths.at(static_cast<std::size_t>(rank_count + exchange.rank())));
      try {
        Communicator communicator = join(point);
        go_on(communicator, point, watch);
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
      if (testing::Test::HasFailure()) failed_spares->store(true);
    });
    Ranks members(rank_count, [&](Exchange& exchange) {
      const Stopwatch watch;
      Communicator communicator = make(exchange, hang_limit());
      // In every other trial spares wait at rank 0, as long as that lives.
      const auto open = held_by(trial % 2 == 0 ? 0 : -1, exchange, point);
      die_after(deaths.at(static_cast<std::size_t>(exchange.rank())));
      go_on(communicator, point, watch);
    });
    std::vector<Ending> endings(rank_count, all_right);
    for (std::size_t rank = 0; rank < rank_count; ++rank) {
      if (deaths.at(rank) >= 0us) endings[rank] = killed;
    }
    expect_endings(members, endings);
    EXPECT_FALSE(failed_spares->load());
    // Spares that were not needed still wait, and are killed.
  }
}

}  // namespace
}  // namespace tutti::test::ranks
