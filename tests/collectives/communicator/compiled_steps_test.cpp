// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/compiled_steps.hpp"

#include "transport/plan/tuning.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

/// The steps in which a team reduces by what is compiled at run time.
namespace tutti::collectives {
namespace {

using Shares = std::vector<std::uint64_t>;
using Kind = CompiledStep::Kind;

/// Of columns of so many elements.
std::vector<CompiledStep> steps_of(Collective collective, const std::vector<std::uint64_t>& columns,
                                   std::size_t members, DType dtype = DType::float32) {
  Request whole(collective, {}, columns.size());
  for (const std::uint64_t elements : columns) whole.add_column(elements, dtype);
  return compiled_steps(whole, members, members - 1);
}

void expect_step(const CompiledStep& step, Kind kind, std::size_t first, std::size_t columns) {
  EXPECT_EQ(step.kind, kind) << in_words(step);
  EXPECT_EQ(step.first, first) << in_words(step);
  EXPECT_EQ(step.columns, columns) << in_words(step);
  EXPECT_EQ(step.shares.size(), columns) << in_words(step);
}

TEST(CompiledSteps, MembersHaveNearlyEvenSharesThatBeginWhereAccessesAreWide) {
  for (const DType dtype : {DType::int8, DType::bfloat16, DType::float32, DType::float64}) {
    const std::uint64_t alignment = 16 / size_of(dtype);
    for (const std::size_t members : {2U, 3U, 7U, 8U}) {
      for (const std::uint64_t elements : {70'001U, 100'000U, 1U << 17U}) {
        const std::vector<CompiledStep> steps = steps_of(Collective::all_reduce, {elements}, members, dtype);
        ASSERT_EQ(steps.size(), 2U);
        expect_step(steps[0], Kind::exchange, 0, 1);
        expect_step(steps[1], Kind::spread, 0, 1);
        const Shares& shares = steps[0].shares[0];
        EXPECT_EQ(shares, steps[1].shares[0]) << "what a member combines, it hands on";
        ASSERT_EQ(shares.size(), members);
        EXPECT_EQ(std::accumulate(shares.begin(), shares.end(), std::uint64_t{0}), elements);
        const auto [least, most] = std::ranges::minmax(shares);
        EXPECT_LT(most - least, 2 * alignment);
        for (std::size_t member = 0; member < members; ++member)
          EXPECT_EQ(steps[0].start_of(0, member) % alignment, 0U);
        const bool are_equal = elements % (members * alignment) == 0;
        EXPECT_EQ(least == most, are_equal);
        EXPECT_EQ(steps[0].request.parts.size(), are_equal ? 0U : members * members);
        EXPECT_EQ(steps[1].request.parts.size(), are_equal ? 0U : members);
      }
    }
  }
}

TEST(CompiledSteps, SmallTensorsAreGatheredTogether) {
  const std::uint64_t half = transport::compiled_gathers_to / 2 / sizeof(float);
  const std::vector<CompiledStep> steps = steps_of(Collective::all_reduce, {half, 0, half, 1}, 3);
  ASSERT_EQ(steps.size(), 2U);
  expect_step(steps[0], Kind::gather, 0, 3);
  expect_step(steps[1], Kind::gather, 3, 1);
  EXPECT_EQ(steps[0].shares, (std::vector<Shares>{Shares(3, half), Shares(3, 0), Shares(3, half)}));
}

TEST(CompiledSteps, LargerOnesThatAreSharedOutEvenlyGoTogether) {
  const std::uint64_t third = transport::compiled_batches_to / 3 / sizeof(float) / 2 * 2;
  const std::vector<CompiledStep> steps =
      steps_of(Collective::all_reduce, {third, third, third, third, third, third + 1}, 2);
  ASSERT_EQ(steps.size(), 6U);
  for (const std::size_t step : {0U, 2U, 4U}) {
    const std::size_t columns = 3 - step / 2;
    const std::size_t first = step / 2 * 3 - (step == 4 ? 1 : 0);
    expect_step(steps[step], Kind::exchange, first, columns);
    expect_step(steps[step + 1], Kind::spread, first, columns);
  }
  EXPECT_EQ(steps[0].shares, std::vector<Shares>(3, Shares(2, third / 2)));
}

TEST(CompiledSteps, ARootCombinesTensorsWhole) {
  const std::uint64_t large = transport::compiled_gathers_to;
  const std::vector<CompiledStep> steps = steps_of(Collective::reduce, {5, 7, large, 9}, 3);
  ASSERT_EQ(steps.size(), 3U);
  expect_step(steps[0], Kind::gather, 0, 2);
  expect_step(steps[1], Kind::exchange, 2, 1);
  expect_step(steps[2], Kind::exchange, 3, 1);
  EXPECT_EQ(steps[0].shares, (std::vector<Shares>{{0, 0, 5}, {0, 0, 7}}));
  EXPECT_EQ(steps[1].shares, (std::vector<Shares>{{0, 0, large}}));
  EXPECT_EQ(steps[2].shares, (std::vector<Shares>{{0, 0, 9}}));
}

TEST(CompiledSteps, EveryMemberCombinesItsOwnPart) {
  const std::vector<CompiledStep> equal = steps_of(Collective::reduce_scatter, {300, 30}, 3);
  ASSERT_EQ(equal.size(), 1U);
  expect_step(equal[0], Kind::exchange, 0, 2);
  EXPECT_EQ(equal[0].shares, (std::vector<Shares>{Shares(3, 100), Shares(3, 10)}));

  Request whole(Collective::reduce_scatter);
  whole.parts = {10, 0, 5};
  whole.add_column(15, DType::float32);
  const std::vector<CompiledStep> unequal = compiled_steps(whole, 3, 0);
  ASSERT_EQ(unequal.size(), 1U);
  expect_step(unequal[0], Kind::exchange, 0, 1);
  EXPECT_EQ(unequal[0].shares, (std::vector<Shares>{{10, 0, 5}}));
  EXPECT_EQ(unequal[0].start_of(0, 2), 10U);
}

}  // namespace
}  // namespace tutti::collectives
