// SPDX-License-Identifier: Apache-2.0
#include "perf/report/baseline_report.hpp"

#include "perf/report/columns.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

std::string in_words(const BaselineVerdict::Change& change) {
  return fmt::format("{}: {} us, was {} ({} %)", change.what, format_figure(change.microseconds),
                     format_figure(change.before), format_change(change.microseconds / change.before));
}

}  // namespace

std::string format_change(double over_baseline) {
  return fmt::format("{:+.1f}", 100.0 * (over_baseline - 1.0));
}

BaselineVerdict compare_with_baseline(const Results& results) {
  BaselineVerdict verdict;
  for (const Row& row : results.rows) {
    for (const auto* const measured : {&row.out_of_place, &row.in_place}) {
      if (!*measured) continue;
      const std::string what = row.in_words() + (measured == &row.in_place ? " in place" : "");
      if (!(*measured)->baseline_microseconds) {
        verdict.unaccounted.push_back(what);
        continue;
      }
      ++verdict.compared;
      const BaselineVerdict::Change change{what, (*measured)->microseconds(),
                                           *(*measured)->baseline_microseconds};
      if (row.peer.empty() && change.percent() > results.baseline->tolerance())
        verdict.slower.push_back(change);
    }
  }
  std::ranges::stable_sort(verdict.slower, std::ranges::greater(), &BaselineVerdict::Change::percent);
  return verdict;
}

std::string format_baseline(const Results& results) {
  const Baseline& baseline = *results.baseline;
  const BaselineVerdict verdict = compare_with_baseline(results);
  std::string text =
      fmt::format("# baseline {} ({}): {} time(s) compared, {} slower by more than {} %\n", baseline.file(),
                  baseline.about(), verdict.compared, verdict.slower.size(), baseline.tolerance());
  for (const BaselineVerdict::Change& change : verdict.slower)
    text += fmt::format("#   slower: {}\n", in_words(change));
  if (!verdict.unaccounted.empty()) {
    text += fmt::format("#   not in the baseline: {} time(s), first {}\n", verdict.unaccounted.size(),
                        verdict.unaccounted.front());
  }
  if (baseline.left_over() > 0)
    text += fmt::format("#   in the baseline alone: {} time(s)\n", baseline.left_over());
  return text;
}

std::string complaint_of_baseline(const Results& results) {
  const BaselineVerdict verdict = compare_with_baseline(results);
  if (verdict.is_passed()) return "";
  if (verdict.compared == 0) {
    return fmt::format("nothing that was measured is in the baseline '{}', expected a time at least",
                       results.baseline->file());
  }
  return fmt::format("{} of {} time(s) slower than the baseline by more than {} %, most {}",
                     verdict.slower.size(), verdict.compared, results.baseline->tolerance(),
                     in_words(verdict.slower.front()));
}

}  // namespace tutti::perf
