// SPDX-License-Identifier: Apache-2.0
#include "transport/select/plan_cache.hpp"

#include "collectives/call/request.hpp"
#include "collectives/communicator/team_context.hpp"
#include "tutti/exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport {
namespace {

PlanKey key_of(std::uint64_t number) {
  PlanKey key;
  key.add(number);
  return key;
}

class Plans : public testing::Test {
 protected:
  /// Whether a plan of about so many bytes had to be made.
  bool is_made(std::uint64_t key, std::size_t bytes) {
    bool made = false;
    static_cast<void>(cache_.find_or_make(key_of(key), [&] {
      made = true;
      Plan plan;
      plan.homes.resize(bytes / sizeof(LaneId));
      return plan;
    }));
    return made;
  }

 private:
  PlanCache cache_{Runtime::get()};
};

TEST_F(Plans, AreMadeOnce) {
  EXPECT_TRUE(is_made(1, 100));
  EXPECT_TRUE(is_made(2, 100));
  EXPECT_FALSE(is_made(1, 100));
  EXPECT_FALSE(is_made(2, 100));
}

TEST_F(Plans, AreForgottenOldestFirstWhenThereAreTooMany) {
  for (std::uint64_t key = 0; key < PlanCache::most_plans; ++key) ASSERT_TRUE(is_made(key, 100));
  EXPECT_TRUE(is_made(PlanCache::most_plans, 100));
  EXPECT_FALSE(is_made(1, 100));
  EXPECT_TRUE(is_made(0, 100));
}

TEST_F(Plans, AreForgottenOldestFirstWhenTheyTakeTooMuchMemory) {
  constexpr std::size_t quarter = PlanCache::most_bytes / 4;
  for (std::uint64_t key = 0; key < 3; ++key) EXPECT_TRUE(is_made(key, quarter));
  EXPECT_TRUE(is_made(3, quarter)) << "a quarter and a little, four times";
  EXPECT_FALSE(is_made(1, quarter));
  EXPECT_TRUE(is_made(0, quarter));
}

TEST_F(Plans, AreKeptWhileTheyAreAskedForAgain) {
  EXPECT_TRUE(is_made(0, 100));
  for (std::uint64_t key = 1; key < 3 * PlanCache::most_plans; ++key) {
    ASSERT_TRUE(is_made(key, 100));
    if (key % 1000 == 0) {
      ASSERT_FALSE(is_made(0, 100)) << "after " << key << " others";
    }
  }
  for (std::uint64_t key = 0; key < 2 * PlanCache::most_plans; ++key) ASSERT_TRUE(is_made(~key, 100));
  EXPECT_TRUE(is_made(0, 100)) << "not asked for any more";
}

TEST_F(Plans, AreKeptHoweverLarge) {
  EXPECT_TRUE(is_made(0, 2 * PlanCache::most_bytes));
  EXPECT_FALSE(is_made(0, 2 * PlanCache::most_bytes));
}

class OnlyProcess final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
};

TEST(PlansOfATeam, InUseAreNotPushedOutByExchangesWhoseSizesAreAlwaysOthers) {
  OnlyProcess process;
  collectives::TeamContext context(process, {.window_bytes = std::size_t{1} << 20U, .devices = {0, 1}});
  const auto exchange = [&](std::uint64_t bytes) {
    collectives::Request request(Collective::all_to_all);
    request.copied().bytes = {bytes + 1};
    request.parts = {1, bytes, bytes, 1};
    return context.plan_for(request, 0);
  };
  collectives::Request sum(Collective::all_reduce);
  sum.add_column(1000, DType::float32);
  const std::shared_ptr<const Plan> plan = context.plan_for(sum, 0);
  const std::shared_ptr<const Plan> first = exchange(2);
  EXPECT_EQ(exchange(2), first);
  for (std::uint64_t bytes = 3; bytes < 3 + 2 * PlanCache::most_plans; ++bytes) {
    static_cast<void>(exchange(bytes));
    ASSERT_EQ(context.plan_for(sum, 0), plan);
  }
  EXPECT_NE(exchange(2), first);
}

}  // namespace
}  // namespace tutti::transport
