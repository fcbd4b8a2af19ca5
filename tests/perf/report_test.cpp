#include "perf/json.hpp"
#include "perf/results.hpp"
#include "perf/table.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

Measurement measured(double microseconds, std::uint64_t wrong = 0) {
  Measurement measurement;
  measurement.timing.back_to_back = summarize({microseconds});
  measurement.timing.latency = summarize({2 * microseconds});
  measurement.timing.iterations = 20;
  measurement.wrong = wrong;
  return measurement;
}

Row scatter_row() {
  Row row;
  row.operation = "scatter";
  row.bytes = 8'000'000;
  row.count = 2'000'000;
  row.device_count = 4;
  row.bus_factor = 0.75;
  row.transport = "p2p";
  row.algorithm = "copy engines";
  row.out_of_place = measured(100.0);
  return row;
}

Results results_of(std::vector<Row> rows) {
  Results results;
  results.device_count = 4;
  results.rows = std::move(rows);
  return results;
}

TEST(PerfReport, BandwidthIsPayloadOverTimeAndTheShareThatMoves) {
  const Row row = scatter_row();
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row, *row.out_of_place, Headline::back_to_back), 80.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row, *row.out_of_place, Headline::back_to_back), 60.0);
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row, *row.out_of_place, Headline::latency), 40.0);
}

TEST(PerfReport, AverageLeavesPeersOut) {
  Row in_place = scatter_row();
  in_place.in_place = measured(50.0);
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.out_of_place = measured(1.0);
  EXPECT_DOUBLE_EQ(results_of({in_place, peer}).average_bus_bandwidth(Headline::back_to_back),
                   (60.0 + 120.0) / 2);
  EXPECT_EQ(results_of({}).average_bus_bandwidth(Headline::back_to_back), 0.0);
}

TEST(PerfReport, WrongElementsAddUpOverPlacementsAndPeers) {
  Row row = scatter_row();
  row.out_of_place->wrong = 3;
  row.in_place = measured(1.0, 4);
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.out_of_place->wrong = 5;
  EXPECT_EQ(results_of({row, peer}).wrong(), 12U);
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(PerfTable, RowsHaveTheColumnsOfNcclTests) {
  const std::vector<std::string> words = words_of(format_row(scatter_row(), Headline::back_to_back));
  const std::vector<std::string> expected{"8000000", "2000000", "float32", "none", "0",    "100.0",
                                          "80.00",   "60.00",   "0",       "N/A",  "N/A",  "N/A",
                                          "N/A",     "200.0",   "200.0",   "p2p:", "copy", "engines"};
  EXPECT_EQ(words, expected);
}

TEST(PerfTable, UncheckedIsNotZeroWrong) {
  Row row = scatter_row();
  row.out_of_place->wrong.reset();
  EXPECT_EQ(words_of(format_row(row, Headline::back_to_back)).at(8), "N/A");
}

TEST(PerfTable, PeersSayHowTheyCompare) {
  Row row = scatter_row();
  row.peer = "nccl";
  row.algorithm = "plain calls";
  row.peer_over_tutti = 2.5;
  EXPECT_NE(format_row(row, Headline::back_to_back).find("peer nccl: plain calls, 2.50x tutti's time"),
            std::string::npos);
}

TEST(PerfTable, WhatIsInPlaceOnlyStillHasLatencies) {
  Row row = scatter_row();
  row.in_place = std::exchange(row.out_of_place, std::nullopt);
  const std::vector<std::string> words = words_of(format_row(row, Headline::back_to_back));
  EXPECT_EQ(words.at(5), "N/A");
  EXPECT_EQ(words.at(9), "100.0");
  EXPECT_EQ(words.at(13), "200.0");
}

Results results_of_ranks() {
  Results results = results_of({scatter_row()});
  results.job = {.mode = Mode::ranks,
                 .ranks = 2,
                 .devices_per_rank = 2,
                 .members = {},
                 .start_up = StartUp{.devices = 2.0, .communicator = 5.0, .first_collective = 20.0},
                 .memory = CommunicatorMemory{.created = (43U << 20U) - 1, .with_nccl = 700U << 20U}};
  for (int member = 0; member < 4; ++member) {
    results.job.members.push_back(
        {member / 2, "node" + std::to_string(member / 2), member % 2, "a device", ""});
  }
  return results;
}

TEST(PerfTable, HeaderSaysWhereTheRanksAreAndWhatStartingTook) {
  const std::string header = format_header({}, results_of_ranks());
  for (const char* expected :
       {"2 rank(s) with 2 ", "on the slowest rank", "2 on 2 host(s)",
        "member 3: rank 1 on node1, device 1 a device", "devices ready 2.0 ms", "communicator 5.0 ms",
        "20.0 ms after MPI_Init", "# memory of the communicator: 43 MiB per device (700 MiB with NCCL)\n"}) {
    EXPECT_NE(header.find(expected), std::string::npos) << expected << " is not in:\n" << header;
  }
  EXPECT_EQ(format_header({}, results_of({})).find("rank"), std::string::npos);
}

TEST(PerfTable, FooterCountsWrongElementsAndWhatWasNotMeasured) {
  Row row = scatter_row();
  row.out_of_place->wrong = 3;
  Results results = results_of({row});
  results.skipped.push_back({"scatter 8", "reason"});
  const std::string footer = format_footer(results, {});
  EXPECT_NE(footer.find("wrong elements: 3 FAILED"), std::string::npos) << footer;
  EXPECT_NE(footer.find("not measured: 1"), std::string::npos) << footer;
  EXPECT_NE(footer.find("average bus bandwidth: 60.000"), std::string::npos) << footer;
  EXPECT_NE(format_footer(results_of({scatter_row()}), {}).find("wrong elements: 0 OK"), std::string::npos);
}

TEST(PerfTable, PairMatricesHaveSourcesAsRowsAndDestinationsAsColumns) {
  std::vector<Row> rows;
  for (const auto& [source, target, microseconds] : {std::tuple{0, 1, 10.0}, std::tuple{1, 0, 20.0}}) {
    Row row = scatter_row();
    row.device_count = 2;
    row.root = source;
    row.partner = target;
    row.out_of_place = measured(microseconds);
    rows.push_back(row);
  }
  const std::string text = format_pair_matrices(rows, Headline::back_to_back);
  std::istringstream lines(text);
  std::vector<std::vector<std::string>> numbers;
  for (std::string line; std::getline(lines, line);) {
    if (line.front() != '#') numbers.push_back(words_of(line));
  }
  ASSERT_EQ(numbers.size(), 4U) << text;
  EXPECT_EQ(numbers[0], (std::vector<std::string>{"0", "-", "20.00"}));  // latency: twice the time
  EXPECT_EQ(numbers[1], (std::vector<std::string>{"1", "40.00", "-"}));
  EXPECT_EQ(numbers[2], (std::vector<std::string>{"0", "-", "800.0"}));  // bandwidth
  EXPECT_EQ(numbers[3], (std::vector<std::string>{"1", "400.0", "-"}));
}

TEST(PerfJson, HasTheSchemaAndEveryFigure) {
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.peer_over_tutti = 2.0;
  const auto document =
      nlohmann::json::parse(to_json({}, results_of({scatter_row(), peer}), {"tutti-perf", "scatter"}));
  EXPECT_EQ(document["schema"], "tutti-perf/2");
  EXPECT_EQ(document["command_line"].size(), 2U);
  EXPECT_EQ(document["summary"]["wrong"], 0);
  ASSERT_EQ(document["rows"].size(), 2U);
  const auto& row = document["rows"][0];
  EXPECT_EQ(row["operation"], "scatter");
  EXPECT_EQ(row["by"], "tutti");
  EXPECT_EQ(row["size"], 8'000'000);
  EXPECT_DOUBLE_EQ(row["out_of_place"]["time_us"], 100.0);
  EXPECT_DOUBLE_EQ(row["out_of_place"]["algbw_gbps"], 80.0);
  EXPECT_DOUBLE_EQ(row["out_of_place"]["busbw_gbps"], 60.0);
  EXPECT_DOUBLE_EQ(row["out_of_place"]["latency_us"]["p99"], 200.0);
  EXPECT_EQ(row["out_of_place"]["wrong"], 0);
  EXPECT_TRUE(row["in_place"].is_null());
  EXPECT_EQ(document["rows"][1]["by"], "nccl");
  EXPECT_DOUBLE_EQ(document["rows"][1]["time_over_tutti"], 2.0);
}

TEST(PerfJson, HasTheRanks) {
  const auto document = nlohmann::json::parse(to_json({}, results_of_ranks(), {}));
  EXPECT_EQ(document["mode"], "ranks");
  EXPECT_EQ(document["ranks"], 2);
  EXPECT_EQ(document["devices_per_rank"], 2);
  EXPECT_EQ(document["hosts"], (std::vector<std::string>{"node0", "node1"}));
  EXPECT_EQ(document["members"].size(), 4U);
  EXPECT_EQ(document["members"][2]["rank"], 1);
  EXPECT_EQ(document["start_up_ms"]["devices"], 2.0);
  EXPECT_EQ(document["start_up_ms"]["first_collective"], 20.0);
  EXPECT_EQ(document["communicator_memory"]["created"], (43U << 20U) - 1);
  EXPECT_EQ(document["communicator_memory"]["with_nccl"], 700U << 20U);
  const auto alone = nlohmann::json::parse(to_json({}, results_of({}), {}));
  EXPECT_EQ(alone["mode"], "single_process");
  EXPECT_TRUE(alone["start_up_ms"].is_null());
  EXPECT_TRUE(alone["communicator_memory"].is_null());
}

TEST(PerfJson, LeaksNoOtherEnvironment) {
  ::setenv("TUTTI_SECRET_TOKEN", "do-not-tell", 1);
  ::setenv("NCCL_ALGO", "Ring", 1);
  const std::string text = to_json({}, results_of({}), {});
  ::unsetenv("TUTTI_SECRET_TOKEN");
  ::unsetenv("NCCL_ALGO");
  EXPECT_EQ(text.find("do-not-tell"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(text)["environment"]["NCCL_ALGO"], "Ring");
}

TEST(PerfJson, UncheckedIsNullAndNotZero) {
  Options options;
  options.check = false;
  Row row = scatter_row();
  row.out_of_place->wrong.reset();
  const auto document = nlohmann::json::parse(to_json(options, results_of({row}), {}));
  EXPECT_TRUE(document["summary"]["wrong"].is_null());
  EXPECT_TRUE(document["rows"][0]["out_of_place"]["wrong"].is_null());
}

}  // namespace
}  // namespace tutti::perf
