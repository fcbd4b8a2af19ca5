// SPDX-License-Identifier: Apache-2.0
#include "perf/report/baseline.hpp"

#include "perf/processes/failure.hpp"
#include "perf/report/columns.hpp"
#include "perf/report/files.hpp"
#include "perf/report/json.hpp"
#include "perf/session/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr const char* schema = "tutti-perf/2";
/// Of a row: what it is that has been measured.
constexpr const char* identifying[] = {"operation",   "by",      "mode",   "size",    "tensors",
                                       "tensor_list", "dtype",   "redop",  "root",    "dim",
                                       "destination", "devices", "launch", "results", "memory"};
constexpr std::pair<const char*, std::optional<Measurement> Row::*> placements[] = {
    {"out_of_place", &Row::out_of_place}, {"in_place", &Row::in_place}};

std::string key_of(const Json& row, const char* placement, std::string_view mode, int ranks) {
  std::string key = fmt::format("{} {} {}", placement, mode, ranks);
  for (const char* const name : identifying) key += row.value(name, Json()).dump() + "\n";
  return key;
}

Json parsed(const std::string& file) {
  const std::string text = read_named_file(file, fmt::format("--baseline: '{}' cannot be read", file));
  Json document = Json::parse(text, nullptr, false);
  if (!document.is_object() || document.value("schema", Json()) != schema)
    throw UsageError(
        fmt::format("--baseline: '{}' is not a file of -J, expected a document of schema {}", file, schema));
  return document;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "unknown";
}

std::string in_words(const BaselineVerdict::Change& change) {
  return fmt::format("{}: {} us, was {} ({} %)", change.what, format_figure(change.microseconds),
                     format_figure(change.before), format_change(change.microseconds / change.before));
}

}  // namespace

Baseline::Baseline(const Options& options) : file_(options.baseline_file), tolerance_(options.tolerance) {
  const Json document = parsed(file_);
  try {
    read(document, options.timing.over_ranks);
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("--baseline: '{}' is not a complete document of schema {}: {}", file_,
                                 schema, error.what()));
  }
}

void Baseline::read(const Json& document, OverRanks over_ranks) {
  const int ranks = document.at("ranks").get<int>();
  // Older documents know nothing but the maximum.
  const std::string how = document.at("settings").value("over_ranks", "max");
  if (ranks > 1 && how != name_in(over_ranks_names, over_ranks)) {
    throw UsageError(fmt::format("--baseline: '{}' has the {} of the ranks' times, expected the {} (-a)",
                                 file_, how, name_in(over_ranks_names, over_ranks)));
  }
  const auto mode = document.at("mode").get<std::string>();
  std::map<std::string, std::vector<double>> each;
  for (const Json& row : document.at("rows")) {
    for (const auto& [placement, part] : placements) {
      const Json& measured = row.at(placement);
      if (measured.is_null()) continue;
      each[key_of(row, placement, mode, ranks)].push_back(
          measured.at("back_to_back_us").at("median").get<double>());
    }
  }
  for (auto& [key, times] : each) times_[key].microseconds = summarize(std::move(times)).median;
  about_ = fmt::format("{}, commit {}", text_of(document.value("date", Json())),
                       text_of(document.value("commit", Json())));
}

void Baseline::compare(Row& row, const Job& job) {
  const Json written = row_of(row, Detail::summaries);
  for (const auto& [placement, part] : placements) {
    const auto before = times_.find(key_of(written, placement, name_of(job.mode), job.ranks));
    if (!(row.*part) || before == times_.end()) continue;
    (row.*part)->baseline_microseconds = before->second.microseconds;
    before->second.is_compared = true;
  }
}

std::size_t Baseline::left_over() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(times_, [](const auto& entry) { return !entry.second.is_compared; }));
}

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
    return fmt::format("the baseline '{}' has none of the measured cases, expected at least one",
                       results.baseline->file());
  }
  return fmt::format("{} of {} time(s) slower than the baseline by more than {} %, most {}",
                     verdict.slower.size(), verdict.compared, results.baseline->tolerance(),
                     in_words(verdict.slower.front()));
}

}  // namespace tutti::perf
