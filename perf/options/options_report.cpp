// SPDX-License-Identifier: Apache-2.0
#include "perf/options/options_report.hpp"

#include "perf/operations/sizes.hpp"
#include "perf/processes/usage_error.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr int most_skipped = 1'000'000;

OverRanks parse_over_ranks(const std::string& text) {
  constexpr OverRanks all[] = {OverRanks::rank0, OverRanks::average, OverRanks::minimum, OverRanks::maximum};
  const auto named = std::ranges::find_if(all, [&text](OverRanks how) {
    return text == name_of(how) || text == fmt::format("{}", static_cast<int>(how));
  });
  if (named == std::end(all)) refuse_value("-a", text, "max, min, average or rank0 (or 3, 2, 1, 0)");
  return *named;
}

double parse_tolerance(const std::string& text) {
  double percent = 0.0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, percent);
  const bool is_fit = error == std::errc() && rest == end && percent >= 0.0 && std::isfinite(percent);
  if (!is_fit) refuse_value("--tolerance", text, "per cent, 0 or more");
  return percent;
}

}  // namespace

void parse_report(const TypedOptions& typed, Options& options) {
  options.timing.over_ranks = parse_over_ranks(typed.over_ranks);
  options.timing.skipped = parse_number(typed.skipped, "-K", 0, most_skipped);
  if (options.timing.iterations && options.timing.skipped >= *options.timing.iterations) {
    throw UsageError(fmt::format("-K: {} of {} latencies are left out, expected fewer",
                                 options.timing.skipped, *options.timing.iterations));
  }
  options.shows_spread = parse_number(typed.per_iteration, "-I", 0, 1) == 1;
  options.shows_timestamps = parse_number(typed.timestamps, "-S", 0, 1) == 1;
  options.json_file = typed.json_file;
  options.baseline_file = typed.baseline;
  if (!typed.tolerance.empty()) {
    if (typed.baseline.empty())
      throw UsageError("--tolerance is of a comparison: expected --baseline with it");
    options.tolerance = parse_tolerance(typed.tolerance);
  }
  if (options.command == Command::measure) return;
  for (const auto& [option, file] : {std::pair{"-J writes", &options.json_file},
                                     std::pair{"--baseline compares", &options.baseline_file}}) {
    if (!file->empty())
      throw UsageError(fmt::format("{} what has been measured: expected an operation to measure", option));
  }
}

}  // namespace tutti::perf
