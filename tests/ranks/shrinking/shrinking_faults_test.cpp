// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that are killed while they make calls, and while others shrink the communicator.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

constexpr int rank_count = 5;
constexpr int most_victims = 3;

/// Returns after which time each rank is killed; never, where that is negative.
std::vector<std::chrono::microseconds> random_deaths(std::mt19937_64& random) {
  std::vector<std::chrono::microseconds> deaths(rank_count, -1us);
  const auto first = random() % rank_count;
  const auto victims = 1 + random() % most_victims;
  // Later ones often die while the others shrink the communicator after the first.
  for (std::uint64_t i = 0; i < victims; ++i)
    deaths[(first + i) % rank_count] = patient(20ms) + std::chrono::microseconds(random() % 80'000);
  return deaths;
}

int survivors_of(const std::vector<std::chrono::microseconds>& deaths) {
  return static_cast<int>(std::ranges::count(deaths, -1us));
}

TEST(ShrinkingFaults, SurvivorsOfKillsAtAnyTimeGoOnTogether) {
  std::mt19937_64 random(test_seed());
  for (int trial = 0; trial < 8; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const std::vector<std::chrono::microseconds> deaths = random_deaths(random);
    Ranks ranks(rank_count, [&](Exchange& exchange) {
      Communicator communicator = make(exchange, hang_limit());
      const auto death = deaths[static_cast<std::size_t>(exchange.rank())];
      if (death >= 0us) {
        std::thread([death] {
          std::this_thread::sleep_for(death);
          std::raise(SIGKILL);
        }).detach();
      }
      go_on_down_to(communicator, survivors_of(deaths));
    });
    std::vector<Ending> endings(rank_count, all_right);
    for (std::size_t rank = 0; rank < deaths.size(); ++rank) {
      if (deaths[rank] >= 0us) endings[rank] = killed;
    }
    expect_endings(ranks, endings);
  }
}

}  // namespace
}  // namespace tutti::test::ranks
