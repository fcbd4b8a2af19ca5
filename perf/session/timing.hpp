// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/found_in.hpp"
#include "perf/processes/processes.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

/// Measures times, and combines those that ranks take for the same operation.
namespace tutti::perf {

/// A summary of measurements, in the unit in which they were made.
struct Summary {
  std::size_t count = 0;
  double minimum = 0.0;
  double median = 0.0;
  double p99 = 0.0;
  double maximum = 0.0;
  double mean = 0.0;
  double variation = 0.0;  ///< the coefficient of it: standard deviation of the samples over their mean
};

/// Returns the value below which a share `quantile` (0 to 1) of `sorted` lies, interpolated between
/// neighbours. `sorted` is ascending and not empty.
[[nodiscard]] double quantile(std::span<const double> sorted, double quantile);
/// Summarises samples; all members are zero if there are none.
[[nodiscard]] Summary summarize(std::vector<double> samples);

/// The way in which ranks' times are combined.
enum class OverRanks : std::uint8_t { rank0, average, minimum, maximum };
/// Names in options and files; and nccl-tests' numbers.
inline constexpr Named<OverRanks> over_ranks_names[] = {
    {"max", OverRanks::maximum}, {"min", OverRanks::minimum}, {"average", OverRanks::average},
    {"rank0", OverRanks::rank0}, {"3", OverRanks::maximum},   {"2", OverRanks::minimum},
    {"1", OverRanks::average},   {"0", OverRanks::rank0}};

/// One number of each column of `by_rank`, whose rows are equally long.
[[nodiscard]] std::vector<double> combine(const std::vector<std::vector<double>>& by_rank, OverRanks how);

struct SlowestRank {
  int rank = 0;
  double over_fastest = 1.0;  ///< its time over that of the fastest rank
};
/// Returns the slowest rank, given a time of each; the first one of equal times. Nothing for fewer than two
/// ranks.
[[nodiscard]] std::optional<SlowestRank> slowest_of(std::span<const double> by_rank);

/// Work that can be launched many times.
struct Launcher {
  /// Enqueues launch number `index`, which selects the set of buffers.
  std::function<void(std::size_t index)> launch;
  std::size_t operations_per_launch = 1;  ///< more than one where a peer packs several into one graph
  /// Enqueues a single operation, if `launch` enqueues several; otherwise empty.
  std::function<void()> launch_one;
  /// Blocks until all launches are complete on all devices.
  std::function<void()> synchronize;
  std::size_t rotation = 1;  ///< how many different launches there are: all are warmed up
  /// False if a rank that leaves a batch early would leave the others waiting in it.
  bool interruptible = true;
};

/// The amount of measurement. Values that are not given are chosen so that short operations are repeated
/// often and long ones do not take more than a second or two.
struct TimingPlan {
  std::optional<int> iterations;   ///< launches in a batch
  std::optional<int> warmup;       ///< launches before the first measurement
  std::optional<int> repetitions;  ///< batches; 5, but fewer of long operations unless `iterations` is given
  int skipped = 0;                 ///< latencies that are taken first, and left out of their summary
  OverRanks over_ranks = OverRanks::maximum;
};

/// Times in microseconds per operation. A sample combines all ranks' times, as the plan says.
struct Timing {
  Summary back_to_back;  ///< batches: enqueue all, wait once, divide by their number; one sample per batch
  Summary latency;       ///< from the call to completion on all devices; one sample per operation
  std::size_t iterations = 0;     ///< operations in a batch
  std::vector<double> latencies;  ///< the samples, as they followed one another; also those left out
  std::vector<double> back_to_back_of_ranks;  ///< each rank's median
};

/// Warms up, then measures batches and latencies. All ranks start every batch, and every operation whose
/// latency is measured, together, and make the same launches. Throws Interrupted after Ctrl-C.
[[nodiscard]] Timing measure(const Launcher& launcher, const TimingPlan& plan, Processes& processes);

}  // namespace tutti::perf
