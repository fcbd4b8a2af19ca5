// SPDX-License-Identifier: Apache-2.0
#include "perf/report/baseline.hpp"

#include "perf/options/usage_errors.hpp"
#include "perf/program/program.hpp"
#include "perf/report/columns.hpp"
#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"
#include "perf/report/table.hpp"
#include "support/odd_files.hpp"

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// A file that is gone with it.
class File {
 public:
  explicit File(const std::string& text) { std::ofstream(name_) << text; }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { unlink(name_.c_str()); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  std::string name_ = temporary("baseline.json");
};

Row two_placements(double out_of_place, double in_place) {
  Row row = scatter_row();
  row.out_of_place = measured(out_of_place);
  row.in_place = measured(in_place);
  return row;
}

/// `now`, compared with what `before` have been written as.
Results compared(const Results& before, Results now, Options options = {}) {
  const File file(to_json(options, before, {}));
  options.baseline_file = file.name();
  now.baseline.emplace(options);
  for (Row& row : now.rows) now.baseline->compare(row, now.job);
  return now;
}

TEST(PerfBaseline, EachTimeHasItsChangeAndTheSlowerOnesAreTold) {
  const Results results =
      compared(results_of({two_placements(100.0, 50.0)}), results_of({two_placements(102.0, 60.0)}));
  Options options;
  options.baseline_file = results.baseline->file();
  const std::string line = Columns(options, false).line(results.rows[0]);
  EXPECT_NE(line.find("+2.0"), std::string::npos) << line;
  EXPECT_NE(line.find("+20.0"), std::string::npos) << line;
  EXPECT_EQ(status_of(results), is_slower);
  const std::string foot = format_footer(results);
  EXPECT_NE(foot.find("2 time(s) compared, 1 slower by more than 3 %\n"), std::string::npos) << foot;
  EXPECT_NE(foot.find("#   slower: scatter 8000000 float32 root 0 in place: 60.00 us, was 50.00 (+20.0 %)\n"),
            std::string::npos)
      << foot;
  EXPECT_EQ(foot.find("alone"), std::string::npos) << foot;
  EXPECT_TRUE(complaint_of_baseline(results).starts_with("1 of 2 time(s) slower than the baseline by more"));
  const auto document = nlohmann::json::parse(to_json({}, results, {}));
  EXPECT_EQ(document["rows"][0]["in_place"]["baseline_us"], 50.0);
  EXPECT_EQ(document["rows"][0]["in_place"]["time_over_baseline"], 1.2);
  EXPECT_EQ(document["baseline"]["compared"], 2);
  EXPECT_EQ(document["baseline"]["slower"].size(), 1U);
}

TEST(PerfBaseline, OtherMemoryIsNotCompared) {
  Row registered = two_placements(100.0, 50.0);
  registered.memory = "registered";
  const Row plain = two_placements(100.0, 50.0);
  for (const auto& [before, now] : {std::pair{registered, plain}, std::pair{plain, registered}}) {
    const BaselineVerdict verdict = compare_with_baseline(compared(results_of({before}), results_of({now})));
    EXPECT_EQ(verdict.compared, 0U);
    EXPECT_EQ(verdict.unaccounted.size(), 2U);
  }
  EXPECT_EQ(compare_with_baseline(compared(results_of({registered}), results_of({registered}))).compared, 2U);
}

TEST(PerfBaseline, TheToleranceDecidesAndPeersDoNot) {
  Row peer = two_placements(10.0, 10.0);
  peer.peer = "nccl";
  Row slow_peer = two_placements(1000.0, 1000.0);
  slow_peer.peer = "nccl";
  Options options;
  options.tolerance = 25.0;
  const Results results = compared(results_of({two_placements(100.0, 50.0), peer}),
                                   results_of({two_placements(102.0, 60.0), slow_peer}), options);
  EXPECT_EQ(status_of(results), all_right);
  EXPECT_EQ(complaint_of_baseline(results), "");
  EXPECT_EQ(compare_with_baseline(results).compared, 4U);
}

TEST(PerfBaseline, WhatDiffersHasNoPartner) {
  const std::function<void(Results&)> changes[] = {
      [](Results& results) { results.rows[0].operation = "gather"; },
      [](Results& results) { results.rows[0].bytes = 4; },
      [](Results& results) { results.rows[0].dtype = DType::float64; },
      [](Results& results) { results.rows[0].redop = ReduceKind::max; },
      [](Results& results) { results.rows[0].root = 1; },
      [](Results& results) { results.rows[0].dim = 1; },
      [](Results& results) { results.rows[0].partner = 1; },
      [](Results& results) { results.rows[0].device_count = 2; },
      [](Results& results) { results.rows[0].launch = LaunchForm::persistent; },
      [](Results& results) { results.rows[0].results = ResultForm::returned; },
      [](Results& results) { results.rows[0].tensor_list = "gpt2"; },
      [](Results& results) { results.rows[0].peer = "nccl"; },
      [](Results& results) { std::swap(results.rows[0].out_of_place, results.rows[0].in_place); },
      [](Results& results) { results.job.ranks = 2; },
      [](Results& results) { results.job.mode = Mode::ranks; },
  };
  for (const auto& change : changes) {
    Results now = results_of({scatter_row()});
    change(now);
    const Results results = compared(results_of({scatter_row()}), now);
    const std::size_t number = static_cast<std::size_t>(&change - changes);
    EXPECT_EQ(compare_with_baseline(results).unaccounted.size(), 1U) << number;
    EXPECT_EQ(results.baseline->left_over(), 1U) << number;
    EXPECT_EQ(status_of(results), is_slower) << number;
    EXPECT_EQ(complaint_of_baseline(results), "the baseline '" + results.baseline->file() +
                                                  "' has none of the measured cases, expected at least one");
    const std::string foot = format_footer(results);
    EXPECT_NE(foot.find("#   not in the baseline: 1 time(s), first "), std::string::npos) << foot;
    EXPECT_NE(foot.find("#   in the baseline alone: 1 time(s)\n"), std::string::npos) << foot;
  }
  Options options;
  options.baseline_file = "some.json";
  EXPECT_NE(Columns(options, false).line(scatter_row()).find(" new "), std::string::npos);
}

std::string refusal_of(const std::string& text, const Options& other = {}) {
  const File file(text);
  Options options = other;
  options.baseline_file = file.name();
  return usage_error_of([&options] { const Baseline baseline(options); });
}

TEST(PerfBaseline, OfSeveralCyclesTheMedianIsComparedWith) {
  std::vector<Row> cycles;
  for (const double microseconds : {300.0, 100.0, 101.0}) {
    cycles.push_back(scatter_row());
    cycles.back().cycle = static_cast<int>(cycles.size());
    cycles.back().out_of_place = measured(microseconds);
  }
  const Results results = compared(results_of(cycles), results_of({scatter_row()}));
  EXPECT_EQ(results.rows[0].out_of_place->baseline_microseconds, 101.0);
  EXPECT_EQ(compare_with_baseline(results).compared, 1U);
  EXPECT_EQ(results.baseline->left_over(), 0U);
}

TEST(PerfBaseline, WhatIsNoneIsRefused) {
  Options options;
  options.baseline_file = "/no/such/file";
  EXPECT_EQ(usage_error_of([&options] { const Baseline baseline(options); }),
            "--baseline: '/no/such/file' cannot be read: No such file or directory");
  for (const char* const text : {"", "[]", "no JSON", "{\"schema\": \"other/1\"}"})
    EXPECT_NE(refusal_of(text).find("is not a file of -J, expected a document of schema tutti-perf/2"),
              std::string::npos)
        << text;
  options.baseline_file = testing::TempDir();
  EXPECT_EQ(usage_error_of([&options] { const Baseline baseline(options); }),
            "--baseline: '" + testing::TempDir() + "' cannot be read: Is a directory");
  const test::OddFiles files;
  options.baseline_file = files.pipe;
  EXPECT_EQ(usage_error_of([&options] { const Baseline baseline(options); }),
            "--baseline: '" + files.pipe + "' cannot be read: it is no regular file");
  options.baseline_file = files.large;
  EXPECT_EQ(usage_error_of([&options] { const Baseline baseline(options); }),
            "--baseline: '" + files.large + "' cannot be read: it has more than 67108864 bytes");
  Options average;
  average.timing.over_ranks = OverRanks::average;
  EXPECT_NE(refusal_of(to_json({}, results_of_ranks(), {}), average)
                .find("has the max of the ranks' times, expected the average"),
            std::string::npos);
}

TEST(PerfBaseline, WhatIsNotWholeIsRefused) {
  const std::function<void(nlohmann::json&)> changes[] = {
      [](nlohmann::json& document) { document.erase("rows"); },
      [](nlohmann::json& document) { document["rows"].push_back(7); },
      [](nlohmann::json& document) { document["rows"][0]["out_of_place"] = "fast"; },
      [](nlohmann::json& document) { document["rows"][0]["out_of_place"]["back_to_back_us"] = 5; },
      [](nlohmann::json& document) { document["ranks"] = "two"; },
      [](nlohmann::json& document) { document["mode"] = 1; },
      [](nlohmann::json& document) { document["settings"]["over_ranks"] = 3; },
  };
  for (const auto& change : changes) {
    auto document = nlohmann::json::parse(to_json({}, results_of({scatter_row()}), {}));
    change(document);
    const std::string message = refusal_of(document.dump());
    EXPECT_TRUE(message.starts_with("--baseline: '")) << message;
    EXPECT_NE(message.find("is not a complete document of schema tutti-perf/2: "), std::string::npos)
        << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tutti::perf
