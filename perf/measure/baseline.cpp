// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/baseline.hpp"

#include "perf/measure/json_rows.hpp"
#include "perf/options/named_file.hpp"
#include "perf/processes/usage_error.hpp"
#include "perf/session/statistics.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::perf {
namespace {

constexpr const char* schema = "tutti-perf/2";
/// Of a row: what it is that has been measured.
constexpr const char* identifying[] = {"operation",   "by",      "mode",   "size",   "tensors",
                                       "tensor_list", "dtype",   "redop",  "root",   "dim",
                                       "destination", "devices", "launch", "results"};
constexpr std::pair<const char*, std::optional<Measurement> Row::*> placements[] = {
    {"out_of_place", &Row::out_of_place}, {"in_place", &Row::in_place}};

/// Of a document: what its times depend on besides, and what people call it. Rows tell the launches apart,
/// and how the times of ranks became one has to be the same.
constexpr std::pair<const char*, const char*> of_document[] = {
    {"host", "host"}, {"cpu", "cpu"},   {"backend", "backend"},           {"driver", "driver"},
    {"cuda", "CUDA"}, {"nccl", "NCCL"}, {"nccl_library", "NCCL library"}, {"peer", "peer"}};
constexpr std::pair<const char*, const char*> of_settings[] = {
    {"transport", "--transport"},     {"multiprocessors", "--multiprocessors"},
    {"determinism", "--determinism"}, {"calls_of_a_launch", "-m"},
    {"first_element", "-u"},          {"groups", "--groups"},
    {"latencies_skipped", "-K"}};
/// Variables that only choose what the document tells in other words.
constexpr std::string_view told_elsewhere[] = {"TUTTI_BACKEND", "TUTTI_VIRTUAL_DEVICES",
                                               "TUTTI_VIRTUAL_TOPOLOGY", "TUTTI_NCCL_LIBRARY"};

const Json& part_of(const Json& value, const char* name) {
  static const Json nothing;
  if (!value.is_object()) return nothing;
  const auto found = value.find(name);
  return found == value.end() ? nothing : *found;
}

std::string key_of(const Json& row, const char* placement, std::string_view mode, int ranks) {
  std::string key = fmt::format("{} {} {}", placement, mode, ranks);
  for (const char* const name : identifying) key += part_of(row, name).dump() + "\n";
  return key;
}

/// A document, with the name of its file for what is said of it.
class Document {
 public:
  explicit Document(const std::string& file) : file_(file), json_(parsed(file)) {
    if (!json_.is_object() || part_of(json_, "schema") != schema)
      throw UsageError(fmt::format("--baseline: '{}' is not what -J writes, expected a document of schema {}",
                                   file, schema));
  }

  [[nodiscard]] const Json& json() const noexcept { return json_; }
  [[nodiscard]] const Json& rows() const {
    const Json& rows = part_of(json_, "rows");
    if (!rows.is_array()) refuse("rows", rows, "a list");
    for (std::size_t i = 0; i < rows.size(); ++i)
      if (!rows[i].is_object()) refuse(fmt::format("rows[{}]", i), rows[i], "an object");
    return rows;
  }
  [[nodiscard]] int ranks() const {
    const Json& ranks = part_of(json_, "ranks");
    if (!ranks.is_number_integer()) refuse("ranks", ranks, "how many there were");
    return ranks.get<int>();
  }
  [[nodiscard]] std::string mode() const {
    const Json& mode = part_of(json_, "mode");
    if (!mode.is_string()) refuse("mode", mode, "single_process or ranks");
    return mode.get<std::string>();
  }
  [[nodiscard]] std::string over_ranks() const {
    const Json& how = part_of(part_of(json_, "settings"), "over_ranks");
    if (how.is_null()) return "max";  // older documents know nothing else
    if (!how.is_string()) refuse("settings.over_ranks", how, "max, min, average or rank0");
    return how.get<std::string>();
  }
  /// Of a row and its number; nothing: of rows, or of parts of them, that were not measured.
  [[nodiscard]] std::optional<double> time_of(const Json& row, std::size_t number,
                                              const char* placement) const {
    const Json& measured = part_of(row, placement);
    const std::string name = fmt::format("rows[{}].{}", number, placement);
    if (measured.is_null()) return std::nullopt;
    if (!measured.is_object()) refuse(name, measured, "an object, or null");
    const Json& median = part_of(part_of(measured, "back_to_back_us"), "median");
    if (!median.is_number() || median.get<double>() <= 0.0)
      refuse(name + ".back_to_back_us.median", median, "microseconds, more than 0");
    return median.get<double>();
  }

 private:
  static Json parsed(const std::string& file) {
    const auto read = read_named_file(file);
    if (const auto* const not_read = std::get_if<NotRead>(&read))
      throw UsageError(fmt::format("--baseline: '{}' cannot be read: {}", file, not_read->reason));
    return Json::parse(std::get<std::string>(read), nullptr, false);
  }
  [[noreturn]] void refuse(const std::string& name, const Json& found, const char* expected) const {
    constexpr std::size_t most_letters = 40;
    std::string value = found.dump();
    if (value.size() > most_letters) value = value.substr(0, most_letters) + " ...";
    throw UsageError(fmt::format("--baseline: '{}': {} is {}, expected {}", file_, name, value, expected));
  }

  std::string file_;
  Json json_;
};

std::string text_of(const Json& value, const char* nothing = "unknown") {
  if (value.is_null()) return nothing;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// Of entries, what `describe` says of them: each once, in order.
template <class Describe>
std::string each_once(const Json& entries, Describe&& describe) {
  std::vector<std::string> all;
  for (const Json& entry : entries) {
    std::string text = describe(entry);
    if (std::ranges::find(all, text) == all.end()) all.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(all, " and "));
}

/// What a document tells of its machine, its devices and its settings, by the names that people know.
std::map<std::string, std::string> told_by(const Json& document) {
  std::map<std::string, std::string> all;
  for (const auto& [name, spoken] : of_document) {
    if (const Json& value = part_of(document, name); value.is_string()) all[spoken] = text_of(value);
  }
  if (const Json& members = part_of(document, "members"); members.is_array() && !members.empty())
    all["devices"] = each_once(members, [](const Json& member) { return text_of(part_of(member, "name")); });
  if (const Json& links = part_of(document, "links"); links.is_array() && links.size() > 1) {
    Json every = Json::array();
    for (const Json& line : links) {
      if (line.is_array()) every.insert(every.end(), line.begin(), line.end());
    }
    all["links"] = each_once(every, [](const Json& link) { return text_of(part_of(link, "link")); });
  }
  const Json& settings = part_of(document, "settings");
  for (const auto& [name, spoken] : of_settings) {
    if (settings.is_object() && settings.contains(name)) all[spoken] = text_of(settings.at(name), "default");
  }
  return all;
}

/// Those of the environment that change how devices and transports behave; nothing if the document does not
/// tell.
std::optional<std::map<std::string, std::string>> variables_of(const Json& document) {
  std::map<std::string, std::string> all;
  const Json& variables = part_of(document, "environment");
  if (!variables.is_object()) return std::nullopt;
  for (const auto& [name, value] : variables.items()) {
    if (std::ranges::find(told_elsewhere, name) == std::end(told_elsewhere)) all[name] = text_of(value);
  }
  return all;
}

/// How a row's calls were launched, where the form of launch does not tell; empty if the row does not either.
std::string launches_of(const Json& row) {
  const Json& sets = part_of(row, "buffer_sets");
  const Json& algorithm = part_of(row, "algorithm");
  if (!sets.is_number_integer() || !algorithm.is_string()) return "";
  const bool is_replayed = algorithm.get<std::string>().find("replayed") != std::string::npos;
  return fmt::format("{} buffer set(s){}", sets.get<int>(), is_replayed ? " in graphs of several calls" : "");
}

}  // namespace

Baseline::Baseline(const Options& options) : file_(options.baseline_file), tolerance_(options.tolerance) {
  const Document document(file_);
  const int ranks = document.ranks();
  if (const std::string how = document.over_ranks(); ranks > 1 && how != name_of(options.timing.over_ranks)) {
    throw UsageError(fmt::format("--baseline: the times of ranks in '{}' are their {}, expected the {} (-a)",
                                 file_, how, name_of(options.timing.over_ranks)));
  }
  const std::string mode = document.mode();
  std::map<std::string, std::vector<double>> each;
  const Json& rows = document.rows();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Json& row = rows[i];
    for (const auto& [placement, part] : placements) {
      const std::optional<double> time = document.time_of(row, i, placement);
      if (!time) continue;
      const std::string key = key_of(row, placement, mode, ranks);
      each[key].push_back(*time);
      times_[key] = {.microseconds = 0.0, .is_compared = false, .launches = launches_of(row)};
    }
  }
  for (auto& [key, times] : each) times_[key].microseconds = summarize(std::move(times)).median;
  told_ = told_by(document.json());
  variables_ = variables_of(document.json());
  about_ = fmt::format("{}, commit {}", text_of(part_of(document.json(), "date")),
                       text_of(part_of(document.json(), "commit")));
}

void Baseline::compare(Row& row, const Job& job) {
  const Json written = row_of(row, Detail::summaries);
  for (const auto& [placement, part] : placements) {
    const auto before = times_.find(key_of(written, placement, name_of(job.mode), job.ranks));
    if (!(row.*part) || before == times_.end()) continue;
    (row.*part)->baseline_microseconds = before->second.microseconds;
    before->second.is_compared = true;
    const std::string launches = launches_of(written);
    const std::string& then = before->second.launches;
    if (then.empty() || launches == then || !launches_differ_.empty()) continue;
    launches_differ_ = fmt::format("{}, was {} ({})", launches, then, row.in_words());
  }
}

std::vector<std::string> Baseline::differences(const Json& now) const {
  std::vector<std::string> all;
  const std::map<std::string, std::string> told = told_by(now);
  for (const auto& [name, value] : told) {
    const auto before = told_.find(name);
    if (before != told_.end() && before->second != value)
      all.push_back(fmt::format("{} {}, was {}", name, value, before->second));
  }
  const std::optional<std::map<std::string, std::string>> variables = variables_of(now);
  std::map<std::string, std::string> names;
  if (variables && variables_) {
    names = *variables;
    names.insert(variables_->begin(), variables_->end());
  }
  const auto in = [](const std::map<std::string, std::string>& some, const std::string& name) {
    const auto found = some.find(name);
    return found == some.end() ? std::string("unset") : found->second;
  };
  for (const auto& [name, value] : names) {
    if (in(*variables, name) != in(*variables_, name))
      all.push_back(fmt::format("{} {}, was {}", name, in(*variables, name), in(*variables_, name)));
  }
  if (!launches_differ_.empty()) all.push_back(launches_differ_);
  return all;
}

std::size_t Baseline::left_over() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(times_, [](const auto& entry) { return !entry.second.is_compared; }));
}

}  // namespace tutti::perf
