// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"
#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"
#include "perf/report/table.hpp"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// How figures differ: from call to call and from rank to rank; and when they were measured.
namespace tutti::perf {
namespace {

std::vector<std::string> last_of(const std::vector<std::string>& words, std::ptrdiff_t count) {
  return {words.end() - count, words.end()};
}

Row row_with_latencies() {
  Row row = scatter_row();
  row.out_of_place->timing.latency = summarize({2, 4, 4, 4, 5, 5, 7, 9});
  row.out_of_place->timing.latencies = {9, 4, 4, 4, 5, 5, 7, 2};
  return row;
}

TEST(PerfSpread, LatenciesHaveTheirSpreadWhereItIsAskedFor) {
  Options options;
  options.shows_spread = true;
  const Columns columns(options, false);
  std::istringstream titles(columns.titles());
  std::string line;
  for (int title = 0; title < 2; ++title) std::getline(titles, line);
  EXPECT_EQ(last_of(words_of(line), 5), (std::vector<std::string>{"p50", "p99", "min", "max", "cv"}));
  EXPECT_EQ(last_of(words_of(columns.line(row_with_latencies())), 5),
            (std::vector<std::string>{"4.50", "8.86", "2.00", "9.00", "40.00"}));
}

TEST(PerfSpread, FilesHaveItAlwaysAndEachLatencyWhereItIsAskedFor) {
  Options options;
  const auto latencies = [&options] {
    return nlohmann::json::parse(
        to_json(options, results_of({row_with_latencies()}), {}))["rows"][0]["out_of_place"]["latency_us"];
  };
  EXPECT_EQ(latencies()["mean"], 5.0);
  EXPECT_EQ(latencies()["cv"], 0.4);
  EXPECT_FALSE(latencies().contains("each"));
  options.shows_spread = true;
  EXPECT_EQ(latencies()["each"], (std::vector<double>{9, 4, 4, 4, 5, 5, 7, 2}));
}

TEST(PerfSpread, RowsSayWhenTheyWereMeasured) {
  Row row = scatter_row();
  row.finished = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
  Options options;
  const auto document = nlohmann::json::parse(to_json(options, results_of({row}), {}));
  EXPECT_EQ(document["rows"][0]["timestamp"], "2023-11-14T22:13:20Z");
  options.shows_timestamps = true;
  EXPECT_EQ(last_of(words_of(Columns(options, false).line(row)), 2),
            (std::vector<std::string>{"2023-11-14", "22:13:20"}));
}

TEST(PerfSpread, TheFootAndTheFileSayWhichRankWasSlowest) {
  Results results = results_of_ranks();
  results.rows.push_back(scatter_row());
  results.rows[0].out_of_place->timing.back_to_back_of_ranks = {100.0, 104.0};
  results.rows[1].out_of_place->timing.back_to_back_of_ranks = {100.0, 150.0};
  results.rows[1].in_place = measured(10.0);
  results.rows[1].in_place->timing.back_to_back_of_ranks = {12.0, 11.0};
  EXPECT_NE(format_footer(results).find("# slowest rank: 1 in 2 of 3 measurements; over the fastest one "
                                        "1.50x at most: scatter 8000000 float32 root 0\n"),
            std::string::npos)
      << format_footer(results);
  const auto ranks = nlohmann::json::parse(to_json({}, results, {}))["rows"][1]["out_of_place"]["ranks"];
  EXPECT_EQ(ranks["time_us"], (std::vector<double>{100.0, 150.0}));
  EXPECT_EQ(ranks["slowest"], 1);
  EXPECT_EQ(ranks["over_fastest"], 1.5);
  const Results alone = results_of({scatter_row()});
  EXPECT_EQ(format_footer(alone).find("slowest"), std::string::npos);
  EXPECT_TRUE(nlohmann::json::parse(to_json({}, alone, {}))["rows"][0]["out_of_place"]["ranks"].is_null());
}

TEST(PerfSpread, TheHeadSaysWhatBecomesOfTheTimesOfRanks) {
  Options options;
  for (const auto& [how, words] : {std::pair{OverRanks::rank0, "back to back on rank 0,"},
                                   std::pair{OverRanks::average, "back to back on average over ranks,"},
                                   std::pair{OverRanks::minimum, "back to back on the fastest rank,"},
                                   std::pair{OverRanks::maximum, "back to back on the slowest rank,"}}) {
    options.timing.over_ranks = how;
    EXPECT_NE(format_header(options, results_of_ranks()).find(words), std::string::npos) << words;
    const auto document = nlohmann::json::parse(to_json(options, results_of_ranks(), {}));
    EXPECT_EQ(document["settings"]["over_ranks"], name_in(over_ranks_names, how));
  }
}

}  // namespace
}  // namespace tutti::perf
