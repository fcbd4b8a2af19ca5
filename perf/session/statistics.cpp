// SPDX-License-Identifier: Apache-2.0
#include "perf/session/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tutti::perf {

double quantile(std::span<const double> sorted, double quantile) {
  const double position = quantile * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], position - static_cast<double>(below));
}

Summary summarize(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto count = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / count;
  double squares = 0.0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  const double variation = mean == 0.0 ? 0.0 : std::sqrt(squares / count) / mean;
  return {.count = samples.size(),
          .minimum = samples.front(),
          .median = quantile(samples, 0.5),
          .p99 = quantile(samples, 0.99),
          .maximum = samples.back(),
          .mean = mean,
          .variation = variation};
}

}  // namespace tutti::perf
