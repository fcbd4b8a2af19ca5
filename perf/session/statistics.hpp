// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::perf {

/// What a set of measurements says, in the unit they were made in.
struct Summary {
  std::size_t count = 0;
  double minimum = 0.0;
  double median = 0.0;
  double p99 = 0.0;
  double maximum = 0.0;
  double mean = 0.0;
  double variation = 0.0;  ///< the coefficient of it: standard deviation of the samples over their mean
};

/// The value below which a share `quantile` (0 to 1) of `sorted` lies, interpolated between neighbours.
/// `sorted` is ascending and not empty.
[[nodiscard]] double quantile(std::span<const double> sorted, double quantile);
/// All zero for no samples.
[[nodiscard]] Summary summarize(std::vector<double> samples);

}  // namespace tutti::perf
