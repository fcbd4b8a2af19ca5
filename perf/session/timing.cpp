// SPDX-License-Identifier: Apache-2.0
#include "perf/session/timing.hpp"

#include "perf/processes/interrupt.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace tutti::perf {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double batch_microseconds = 50e3;   ///< what a batch may take
constexpr double total_microseconds = 300e3;  ///< what all batches may take, and all latencies
constexpr int default_warmup = 5;
constexpr int default_repetitions = 5;
constexpr int most_iterations = 200;
constexpr int most_latencies = 200;

/// Calls `launch`, having started in step with all ranks, and waits: this one's microseconds.
template <class Launch>
double run_timed(const Launcher& launcher, Processes& processes, const Launch& launch) {
  check_interrupt();
  processes.barrier();
  const Clock::time_point start = Clock::now();
  launch();
  launcher.synchronize();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

double run_batch(const Launcher& launcher, std::size_t count, Processes& processes) {
  return run_timed(launcher, processes, [&] {
    for (std::size_t index = 0; index < count; ++index) {
      if (launcher.interruptible) check_interrupt();
      launcher.launch(index);
    }
  });
}

/// A single operation.
double run_one(const Launcher& launcher, std::size_t index, Processes& processes) {
  return run_timed(launcher, processes,
                   [&] { launcher.launch_one ? launcher.launch_one() : launcher.launch(index); });
}

/// Of each rank.
std::vector<double> medians_of(const std::vector<std::vector<double>>& by_rank) {
  std::vector<double> medians;
  for (const std::vector<double>& samples : by_rank) medians.push_back(summarize(samples).median);
  return medians;
}

/// As many as fit into `budget`, between `least` and `most`.
int fitting(double budget, double microseconds_each, int least, int most) {
  return static_cast<int>(
      std::clamp(budget / std::max(microseconds_each, 1e-3), double(least), double(most)));
}

double combined(const std::vector<double>& times, OverRanks how) {
  if (how == OverRanks::maximum) return std::ranges::max(times);
  if (how == OverRanks::minimum) return std::ranges::min(times);
  if (how == OverRanks::rank0) return times.front();
  return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
}

}  // namespace

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

std::vector<double> combine(const std::vector<std::vector<double>>& by_rank, OverRanks how) {
  std::vector<double> result;
  for (std::size_t column = 0; column < by_rank.front().size(); ++column) {
    std::vector<double> times;
    for (const std::vector<double>& rank : by_rank) times.push_back(rank[column]);
    result.push_back(combined(times, how));
  }
  return result;
}

std::optional<SlowestRank> slowest_of(std::span<const double> by_rank) {
  if (by_rank.size() < 2) return std::nullopt;
  const auto slowest = std::ranges::max_element(by_rank);
  return SlowestRank{.rank = static_cast<int>(slowest - by_rank.begin()),
                     .over_fastest = *slowest / std::ranges::min(by_rank)};
}

Timing measure(const Launcher& launcher, const TimingPlan& plan, Processes& processes) {
  // First use allocates, connects and plans: never part of an estimate.
  run_batch(launcher, launcher.rotation, processes);
  const int warmup = plan.warmup.value_or(default_warmup);
  // All ranks estimate the same, and so choose the same numbers.
  double estimate = processes.largest(run_batch(launcher, 1, processes));
  for (int done = 1; done < warmup && (plan.warmup || estimate * done < batch_microseconds); ++done) {
    estimate = std::min(estimate, processes.largest(run_batch(launcher, 1, processes)));
  }

  const int iterations = plan.iterations.value_or(fitting(batch_microseconds, estimate, 1, most_iterations));
  const int repetitions = plan.repetitions.value_or(
      plan.iterations ? default_repetitions
                      : fitting(total_microseconds, estimate * iterations, 2, default_repetitions));
  const auto launches = static_cast<std::size_t>(iterations);
  Timing timing;
  timing.iterations = launches * launcher.operations_per_launch;
  std::vector<double> batches;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    batches.push_back(run_batch(launcher, launches, processes) / static_cast<double>(timing.iterations));
  }
  const std::vector<std::vector<double>> batches_of_ranks = gather_values<double>(batches, processes);
  timing.back_to_back = summarize(combine(batches_of_ranks, plan.over_ranks));
  timing.back_to_back_of_ranks = medians_of(batches_of_ranks);

  const double each = timing.back_to_back.median;
  const int samples =
      plan.iterations.value_or(fitting(total_microseconds, each, 3, most_latencies) + plan.skipped);
  std::vector<double> latencies;
  for (int sample = 0; sample < samples; ++sample) {
    latencies.push_back(run_one(launcher, static_cast<std::size_t>(sample), processes));
  }
  timing.latencies = combine(gather_values<double>(latencies, processes), plan.over_ranks);
  timing.latency = summarize({timing.latencies.begin() + plan.skipped, timing.latencies.end()});
  return timing;
}

}  // namespace tutti::perf
