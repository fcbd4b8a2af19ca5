// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"

#include "json_rows.hpp"
#include "usage_error.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr const char* schema = "tutti-perf/2";
/// Of a row: what it is that has been measured.
constexpr const char* identifying[] = {"operation",   "by",      "mode",   "size",   "tensors",
                                       "tensor_list", "dtype",   "redop",  "root",   "dim",
                                       "destination", "devices", "launch", "results"};
constexpr std::pair<const char*, std::optional<Measurement> Row::*> placements[] = {
    {"out_of_place", &Row::out_of_place}, {"in_place", &Row::in_place}};

std::string key_of(const Json& row, const char* placement, std::string_view mode, int ranks) {
  std::string key = fmt::format("{} {} {}", placement, mode, ranks);
  for (const char* const name : identifying) key += row.value(name, Json()).dump() + "\n";
  return key;
}

Json read(const std::string& file) {
  errno = 0;
  std::ifstream stream(file);
  const Json document = stream ? Json::parse(stream, nullptr, false) : Json();
  if (!stream && errno != 0)
    throw UsageError(
        fmt::format("--baseline: '{}' cannot be read: {}", file, std::generic_category().message(errno)));
  if (!document.is_object() || document.value("schema", Json()) != schema)
    throw UsageError(fmt::format("--baseline: '{}' is not what -J writes, expected a document of schema {}",
                                 file, schema));
  return document;
}

/// Nothing: of rows, or of parts of them, that were not measured.
std::optional<double> time_of(const Json& row, const char* placement, Headline headline) {
  const Json measured = row.value(placement, Json());
  if (!measured.is_object()) return std::nullopt;
  return measured.at(headline == Headline::latency ? "latency_us" : "back_to_back_us")
      .at("median")
      .get<double>();
}

}  // namespace

Baseline::Baseline(const Options& options)
    : file_(options.baseline_file), tolerance_(options.tolerance), headline_(options.headline) {
  const Json document = read(file_);
  try {
    const std::string over_ranks = document.at("settings").value("over_ranks", "max");
    const auto ranks = document.at("ranks").get<int>();
    if (ranks > 1 && over_ranks != name_of(options.timing.over_ranks)) {
      throw UsageError(
          fmt::format("--baseline: the times of ranks in '{}' are their {}, expected the {} (-a)", file_,
                      over_ranks, name_of(options.timing.over_ranks)));
    }
    const auto mode = document.at("mode").get<std::string>();
    for (const Json& row : document.at("rows")) {
      for (const auto& [placement, part] : placements) {
        if (const std::optional<double> time = time_of(row, placement, headline_))
          times_[key_of(row, placement, mode, ranks)] = {.microseconds = *time};
      }
    }
    const auto text = [&document](const char* name) {
      return document.value(name, Json()).is_string() ? document.at(name).get<std::string>() : "unknown";
    };
    about_ = fmt::format("{}, commit {}", text("date"), text("commit"));
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("--baseline: '{}' is not what -J writes: {}", file_, error.what()));
  }
}

void Baseline::compare(Row& row, const Job& job) {
  const Json written = row_of(row, Headline::back_to_back, Detail::summaries);
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

}  // namespace tutti::perf
