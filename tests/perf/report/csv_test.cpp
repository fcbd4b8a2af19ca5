// SPDX-License-Identifier: Apache-2.0
#include "perf/report/csv.hpp"

#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// Each line's values, by their names; none of them is quoted.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> values;
    std::istringstream stream(line + ",");
    for (std::string value; std::getline(stream, value, ',');) values.push_back(value);
    if (names.empty()) {
      names = values;
      continue;
    }
    EXPECT_EQ(values.size(), names.size()) << line;
    auto& row = rows.emplace_back();
    for (std::size_t column = 0; column < names.size(); ++column) row[names[column]] = values.at(column);
  }
  return rows;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

TEST(PerfCsv, HasALineForEachRowUnderTheNamesOfTheDocument) {
  Row row = scatter_row();
  row.out_of_place->timing.back_to_back_of_ranks = {100.0, 104.0};
  const Results results = results_of({row, scatter_row()});
  const auto rows = rows_of(to_csv({}, results));
  const auto document = nlohmann::json::parse(to_json({}, results, {}))["rows"][0];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].at("operation"), document["operation"].get<std::string>());
  EXPECT_EQ(rows[0].at("size"), document["size"].dump());
  EXPECT_EQ(rows[0].at("algorithm"), document["algorithm"].get<std::string>());
  EXPECT_EQ(rows[0].at("out_of_place.time_us"), document["out_of_place"]["time_us"].dump());
  EXPECT_EQ(rows[0].at("out_of_place.latency_us.p99"), document["out_of_place"]["latency_us"]["p99"].dump());
  EXPECT_EQ(rows[0].at("out_of_place.ranks.time_us"), "100.0;104.0");
  EXPECT_EQ(rows[0].at("out_of_place.ranks.slowest"), "1");
  EXPECT_EQ(rows[1].at("out_of_place.ranks.slowest"), "");
  EXPECT_EQ(rows[0].at("in_place.time_us"), "");
  EXPECT_EQ(rows[0].at("mode"), "");
}

TEST(PerfCsv, HasTheSameColumnsWhateverIsMeasured) {
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.partner = 1;
  peer.in_place = measured(1.0);
  peer.out_of_place->over_tutti = 2.0;
  Options options;
  options.shows_spread = true;
  EXPECT_EQ(first_line(to_csv(options, results_of({peer}))), first_line(to_csv({}, results_of({}))));
  const auto rows = rows_of(to_csv(options, results_of({peer})));
  EXPECT_EQ(rows.at(0).at("out_of_place.time_over_tutti"), "2.0");
  EXPECT_EQ(rows.at(0).at("destination"), "1");
}

TEST(PerfCsv, QuotesWhatWouldBeTakenApart) {
  Row row = scatter_row();
  row.algorithm = "push, \"fast\"";
  EXPECT_NE(to_csv({}, results_of({row})).find(",\"push, \"\"fast\"\"\","), std::string::npos);
}

}  // namespace
}  // namespace tutti::perf
