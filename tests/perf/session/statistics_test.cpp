// SPDX-License-Identifier: Apache-2.0
#include "perf/session/timing.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfStatistics, QuantilesInterpolateBetweenNeighbours) {
  const std::vector<double> sorted{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.0), 1);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.99), 4.96);
  EXPECT_DOUBLE_EQ(quantile(sorted, 1.0), 5);
  EXPECT_DOUBLE_EQ(quantile(std::vector<double>{7}, 0.99), 7);
}

TEST(PerfStatistics, SummaryDoesNotDependOnOrder) {
  const Summary summary = summarize({9, 1, 5, 3});
  EXPECT_EQ(summary.count, 4U);
  EXPECT_DOUBLE_EQ(summary.minimum, 1);
  EXPECT_DOUBLE_EQ(summary.median, 4);
  EXPECT_DOUBLE_EQ(summary.maximum, 9);
}

TEST(PerfStatistics, VariationIsTheStandardDeviationOverTheMean) {
  const Summary summary = summarize({2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_DOUBLE_EQ(summary.mean, 5);
  EXPECT_DOUBLE_EQ(summary.variation, 2.0 / 5.0);
  EXPECT_EQ(summarize({7}).variation, 0.0);
  EXPECT_EQ(summarize({0, 0}).variation, 0.0);
}

TEST(PerfStatistics, NoSamplesAreAllZero) {
  const Summary summary = summarize({});
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.median, 0.0);
}

}  // namespace
}  // namespace tutti::perf
