// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "ranks/shrinking/deaths.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"

#include <chrono>
#include <cstdint>
#include <random>

#include <gtest/gtest.h>

/// Ranks that are killed while they make calls, and while others shrink the communicator.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

constexpr int rank_count = 5;
constexpr int most_victims = 3;

/// Returns after which time each rank is killed; never, where that is negative.
Deaths random_deaths(std::mt19937_64& random) {
  Deaths deaths(rank_count, -1us);
  const auto first = random() % rank_count;
  const auto victims = 1 + random() % most_victims;
  // Later ones often die while the others shrink the communicator after the first.
  for (std::uint64_t i = 0; i < victims; ++i)
    deaths[(first + i) % rank_count] = patient(20ms) + std::chrono::microseconds(random() % 80'000);
  return deaths;
}

TEST(ShrinkingFaults, SurvivorsOfKillsAtAnyTimeGoOnTogether) {
  std::mt19937_64 random(test_seed());
  for (int trial = 0; trial < 8; ++trial) {
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    const Deaths deaths = random_deaths(random);
    Ranks ranks(rank_count, [&](Exchange& exchange) {
      Communicator communicator = make(exchange, hang_limit());
      die_as(deaths, exchange.rank());
      go_on_down_to(communicator, survivors_of(deaths));
    });
    expect_endings(ranks, endings_of(deaths));
  }
}

}  // namespace
}  // namespace tutti::test::ranks
