// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/problem_maker.hpp"
#include "transport/plan/tuning.hpp"

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

/// Which steps carry what is copied.
namespace tutti::transport {
namespace {

TEST(StepChoice, CopyEnginesTakeOverWhereTheyGainMoreThanTheyCost) {
  constexpr std::uint64_t part = 32 * mib;
  const auto by = [](std::uint64_t bytes_of_part, LaunchMode mode) {
    ProblemMaker make(2, 0);
    make.gather(0, bytes_of_part, 1);
    Problem problem = make.problem();
    problem.mode = mode;
    return lower(problem, reaches_all).summary.algorithm;
  };
  EXPECT_EQ(by(part, LaunchMode::persistent), "copy engines");
  EXPECT_EQ(by(part - 1, LaunchMode::persistent), "root pull");
  EXPECT_EQ(by(1 * mib, LaunchMode::eager), "copy engines");
  EXPECT_EQ(by(512 * kib, LaunchMode::eager), "root pull");

  const auto from = [](LaunchMode mode, std::size_t senders, std::size_t count, std::size_t between_two) {
    return copy_engines_from({.mode = mode, .senders = senders, .count = count, .between_two = between_two});
  };
  EXPECT_EQ(from(LaunchMode::persistent, 2, 2000, 1000), 2000 * 128 * kib) << "many small parts";
  EXPECT_EQ(from(LaunchMode::persistent, 1, 1, 1), 4 * mib);
  EXPECT_EQ(from(LaunchMode::persistent, 1, 16, 16), 16 * 16 * mib);
  EXPECT_EQ(from(LaunchMode::eager, 1, 3, 1), 3 * 4 * mib);
}

}  // namespace
}  // namespace tutti::transport
