// SPDX-License-Identifier: Apache-2.0
#include "perf/options/options_runs.hpp"

#include "perf/operations/sizes.hpp"
#include "perf/processes/usage_error.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr int most_times = std::numeric_limits<int>::max();
constexpr int longest_timeout = 86'400;  ///< in seconds
constexpr int most_calls_of_a_launch = 1024;
constexpr int farthest_element = 1 << 20U;

}  // namespace

void parse_runs(const TypedOptions& typed, Options& options) {
  options.cycles = parse_number(typed.cycles, "-N", 0, most_times);
  if (const int seconds = parse_number(typed.row_timeout, "-T", 0, longest_timeout); seconds > 0)
    options.row_timeout = std::chrono::seconds(seconds);
  options.calls_of_a_launch = parse_number(typed.calls_of_a_launch, "-m", 1, most_calls_of_a_launch);
  if (options.calls_of_a_launch > 1 && options.results == ResultForm::returned) {
    throw UsageError(
        fmt::format("-m {} and --results new exclude each other: calls of a launch would need results of "
                    "their own, expected -m 1",
                    options.calls_of_a_launch));
  }
  options.reports_memory = parse_number(typed.memory_report, "-M", 0, 1) == 1;
  options.first_element = parse_number(typed.first_element, "-u", 0, farthest_element);
  options.groups = parse_number(typed.groups, "--groups", 1, most_times);
  if (options.groups == 1) return;
  if (options.mode != Mode::ranks) {
    throw UsageError(fmt::format(
        "--groups {}: there is one process, expected ranks: start them with mpirun, torchrun or srun",
        options.groups));
  }
  if (options.peer != PeerChoice::none) {
    throw UsageError(fmt::format(
        "--groups {} and --peer exclude each other: a peer measures all ranks together", options.groups));
  }
}

}  // namespace tutti::perf
