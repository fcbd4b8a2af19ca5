// SPDX-License-Identifier: Apache-2.0
#include "support/values/rng_state.hpp"

#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/rng.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Seeds and states of the generators.
namespace tutti {
namespace {

using test::pack;
using test::refuses;
using test::unpack;
using State = test::GeneratorState;

constexpr auto invalid = ErrorCode::invalid_argument;

Tensor fresh(std::int64_t count, int device = 0) {
  return empty({count}, {.dtype = DType::float32, .device = Device(device)});
}

std::vector<float> uniform(std::int64_t count) {
  const Tensor tensor = fresh(count);
  uniform_(tensor);
  return tensor.to_vector<float>();
}

TEST(RngState, SeedingStartsTheSameSequenceOnEveryDevice) {
  manual_seed_all(42);
  std::set<std::vector<float>> sequences;
  for (int device = 0; device < device_count(); ++device) {
    const Tensor tensor = fresh(1000, device);
    normal_(tensor);
    sequences.insert(tensor.to_vector<float>());
  }
  EXPECT_EQ(sequences.size(), 1U);
  manual_seed(43);
  EXPECT_FALSE(sequences.contains([] {
    const Tensor tensor = fresh(1000);
    normal_(tensor);
    return tensor.to_vector<float>();
  }()));
}

TEST(RngState, SeedingConcernsTheCurrentDeviceOnly) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  manual_seed_all(1);
  uniform_(fresh(8, 0));
  const DeviceGuard guard(1);
  manual_seed(2);
  EXPECT_EQ(initial_seed(), 2U);
  EXPECT_EQ(unpack(get_rng_state(0)), (State{1, 8}));
  EXPECT_EQ(unpack(get_rng_state(1)), (State{2, 0}));
  EXPECT_EQ(unpack(get_rng_state()), (State{2, 0}));
}

TEST(RngState, IsSavedAndRestored) {
  manual_seed(6);
  uniform_(fresh(10));
  const RngState saved = get_rng_state();
  const std::vector<float> expected = uniform(100);
  uniform_(fresh(1000));
  set_rng_state(saved);
  EXPECT_EQ(uniform(100), expected);
  const std::vector<RngState> all = get_rng_state_all();
  EXPECT_EQ(all.size(), static_cast<std::size_t>(device_count()));
  manual_seed_all(1000);
  set_rng_state_all(all);
  EXPECT_EQ(get_rng_state_all(), all);
}

TEST(RngState, RefusesStatesThatAreNone) {
  manual_seed_all(9);
  const std::vector<RngState> before = get_rng_state_all();
  EXPECT_TRUE(refuses(
      [] {
        set_rng_state(pack({1, 6}));
      },
      invalid, {"set_rng_state", "offset is 6", "multiple of 4"}));
  std::vector<RngState> states(before.size(), pack({1, 4}));
  states.back() = pack({1, 2});
  EXPECT_TRUE(refuses([&] { set_rng_state_all(states); }, invalid, {"set_rng_state_all", "offset is 2"}));
  states.push_back(pack({1, 4}));
  EXPECT_TRUE(refuses([&] { set_rng_state_all(states); }, invalid,
                      {"set_rng_state_all", std::to_string(states.size()) + " states", "one per device"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(get_rng_state(999)); }, invalid, {"get_rng_state", "999"}));
  EXPECT_TRUE(refuses([] { set_rng_state(pack({1, 4}), 999); }, invalid, {"set_rng_state", "999"}));
  EXPECT_EQ(get_rng_state_all(), before);
}

TEST(RngState, SeedsFromEntropy) {
  const std::uint64_t first = seed();
  EXPECT_EQ(initial_seed(), first);
  const std::uint64_t second = seed_all();
  EXPECT_NE(first, second);
  for (const RngState& state : get_rng_state_all()) EXPECT_EQ(unpack(state), (State{second, 0}));
}

// What happens before initialisation needs a process that is not initialised: a death test in a fresh one.

class RngBeforeInitialization : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  /// Ends the process, successfully if all devices' states are as expected.
  static void exit_if_states_are(const State& first, const State& others) {
    std::vector<State> expected(static_cast<std::size_t>(device_count()), others);
    expected.front() = first;
    std::vector<State> found;
    for (const RngState& state : get_rng_state_all()) found.push_back(unpack(state));
    std::_Exit(found == expected ? 0 : 1);
  }
};

TEST_F(RngBeforeInitialization, EveryGeneratorHasTheDefaultSeed) {
  EXPECT_EXIT(exit_if_states_are({default_rng_seed, 0}, {default_rng_seed, 0}), testing::ExitedWithCode(0),
              "");
}

TEST_F(RngBeforeInitialization, SeedingIsRememberedInOrder) {
  EXPECT_EXIT(
      {
        manual_seed(1);
        manual_seed_all(2);
        manual_seed(3);
        if (is_initialized()) std::_Exit(2);
        exit_if_states_are({3, 0}, {2, 0});
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        manual_seed(3);
        manual_seed_all(2);
        exit_if_states_are({2, 0}, {2, 0});
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(RngBeforeInitialization, RememberedSeedsComeBeforeLaterOnes) {
  EXPECT_EXIT(
      {
        manual_seed_all(2);
        init();
        manual_seed(5);
        exit_if_states_are({5, 0}, {2, 0});
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
