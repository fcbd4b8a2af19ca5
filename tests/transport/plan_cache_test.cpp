// SPDX-License-Identifier: Apache-2.0
#include "transport/plan_cache.hpp"

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

TEST_F(Plans, AreForgottenWhenThereAreTooMany) {
  for (std::uint64_t key = 0; key < PlanCache::capacity; ++key) ASSERT_TRUE(is_made(key, 100));
  EXPECT_FALSE(is_made(0, 100));
  EXPECT_TRUE(is_made(PlanCache::capacity, 100));
  EXPECT_TRUE(is_made(0, 100));
}

TEST_F(Plans, AreForgottenWhenTheyTakeTooMuchMemory) {
  constexpr std::size_t quarter = PlanCache::most_bytes / 4;
  for (std::uint64_t key = 0; key < 3; ++key) EXPECT_TRUE(is_made(key, quarter));
  EXPECT_FALSE(is_made(0, quarter));
  EXPECT_TRUE(is_made(3, quarter)) << "a quarter and a little, four times";
  EXPECT_TRUE(is_made(0, quarter));
}

TEST_F(Plans, AreKeptHoweverLarge) {
  EXPECT_TRUE(is_made(0, 2 * PlanCache::most_bytes));
  EXPECT_FALSE(is_made(0, 2 * PlanCache::most_bytes));
}

}  // namespace
}  // namespace tutti::transport
