// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"
#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"
#include "perf/report/table.hpp"

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfReport, BandwidthIsPayloadOverTimeAndTheShareThatMoves) {
  const Row row = scatter_row();
  EXPECT_DOUBLE_EQ(algorithm_bandwidth(row, *row.out_of_place).value(), 80.0);
  EXPECT_DOUBLE_EQ(bus_bandwidth(row, *row.out_of_place).value(), 60.0);
}

TEST(PerfReport, AverageLeavesPeersOut) {
  Row in_place = scatter_row();
  in_place.in_place = measured(50.0);
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.out_of_place = measured(1.0);
  EXPECT_DOUBLE_EQ(results_of({in_place, peer}).average_bus_bandwidth().value(), (60.0 + 120.0) / 2);
  EXPECT_EQ(results_of({}).average_bus_bandwidth(), std::nullopt);
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

/// Of a run with default options.
Columns columns_of(const Options& options = {}, bool has_peer = false) {
  return {options, has_peer};
}

TEST(PerfTable, RowsHaveTheColumnsOfNcclTests) {
  const std::vector<std::string> words = words_of(columns_of().line(scatter_row()));
  const std::vector<std::string> expected{"8000000", "2000000", "float32", "none",  "0",
                                          "100.0",   "80.00",   "60.00",   "0",     "N/A",
                                          "N/A",     "N/A",     "N/A",     "200.0", "200.0"};
  EXPECT_EQ(words, expected);
  std::istringstream titles(columns_of().titles());
  std::string groups;
  std::string line;
  std::getline(titles, groups);
  std::getline(titles, line);
  EXPECT_EQ(words_of(line),
            (std::vector<std::string>{"#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                                      "#wrong", "time", "algbw", "busbw", "#wrong", "p50", "p99"}));
  EXPECT_LT(groups.find("out of place"), groups.find("in place", groups.find("out of place") + 12)) << groups;
}

TEST(PerfTable, UncheckedIsNotZeroWrong) {
  Row row = scatter_row();
  row.out_of_place->wrong.reset();
  EXPECT_EQ(words_of(columns_of().line(row)).at(8), "N/A");
}

TEST(PerfTable, PeersSayHowTheyCompare) {
  Row row = scatter_row();
  row.peer = "nccl";
  row.peer_mode = "R1";
  row.out_of_place->over_tutti = 2.5;
  Options options;
  options.peer = PeerChoice::nccl;
  const std::vector<std::string> slow = words_of(columns_of(options, true).line(row));
  EXPECT_EQ((std::vector<std::string>{slow.end() - 3, slow.end()}),
            (std::vector<std::string>{"nccl", "R1", "-"}));
  row.out_of_place->is_fastest_peer = true;
  const std::vector<std::string> words = words_of(columns_of(options, true).line(row));
  EXPECT_EQ((std::vector<std::string>{words.end() - 2, words.end()}),
            (std::vector<std::string>{"R1", "2.50x"}));
  EXPECT_EQ(words_of(columns_of({}, true).line(row)).back(), "2.50x");
  row.in_place = measured(10.0, 1);
  EXPECT_EQ(words_of(columns_of(options, true).line(row)).back(), "wrong");
}

TEST(PerfTable, TheFootAndTheStatusSayWhoseElementsAreWrong) {
  const auto row_of = [](const char* peer, const char* mode, std::uint64_t wrong) {
    Row row = scatter_row();
    row.peer = peer;
    row.peer_mode = mode;
    row.out_of_place->wrong = wrong;
    return row;
  };
  const Results peers = results_of(
      {row_of("", "", 0), row_of("nccl", "R2", 7), row_of("nccl", "R1", 0), row_of("nccl", "R2", 3)});
  EXPECT_EQ(status_of(peers), peer_is_wrong);
  EXPECT_NE(format_footer(peers).find("# wrong elements: 10 FAILED: nccl R2 10\n"), std::string::npos);
  Results both = results_of({row_of("nccl", "R0", 2), row_of("", "", 1)});
  EXPECT_EQ(status_of(both), wrong_data);
  EXPECT_NE(format_footer(both).find("# wrong elements: 3 FAILED: nccl R0 2, tutti 1\n"), std::string::npos);
  const auto summary = nlohmann::json::parse(to_json({}, both, {}))["summary"];
  EXPECT_EQ(summary["wrong"], 3);
  EXPECT_EQ(summary["wrong_by_tutti"], 1);
  EXPECT_EQ(status_of(results_of({row_of("", "", 0), row_of("nccl", "R0", 0)})), all_right);
}

TEST(PerfTable, InEachPlacementTheFastestRightModeOfAPeerIsComparedWith) {
  Row own = scatter_row();
  own.in_place = measured(100.0);
  std::vector<Row> rows(4, own);
  rows[0].out_of_place = measured(250.0);
  rows[0].in_place = measured(50.0);
  rows[1].out_of_place = measured(150.0);
  rows[1].peer = "nccl";
  rows[1].peer_mode = "R1";
  rows[2].out_of_place = measured(160.0);
  rows[3].out_of_place = measured(10.0, 1);
  rows[3].in_place = std::nullopt;
  compare_with_peers(own, rows);
  EXPECT_EQ(rows[1].contender(), "nccl R1");
  for (std::size_t row = 0; row < rows.size(); ++row) {
    EXPECT_EQ(rows[row].out_of_place->is_fastest_peer, row == 1) << row;
    EXPECT_EQ(rows[row].in_place && rows[row].in_place->is_fastest_peer, row == 0) << row;
  }
  EXPECT_EQ(rows[1].out_of_place->over_tutti, 1.5);
  EXPECT_EQ(rows[0].in_place->over_tutti, 0.5);
  EXPECT_EQ(rows[3].out_of_place->over_tutti, std::nullopt);
  own.out_of_place->wrong = 1;  // and so is compared with nobody
  compare_with_peers(own, rows);
  for (const Row& row : rows) {
    EXPECT_FALSE(row.out_of_place->is_fastest_peer);
    EXPECT_EQ(row.out_of_place->over_tutti, std::nullopt);
  }
  EXPECT_TRUE(rows[0].in_place->is_fastest_peer);
}

TEST(PerfTable, WhatIsInPlaceOnlyStillHasLatencies) {
  Row row = scatter_row();
  row.in_place = std::exchange(row.out_of_place, std::nullopt);
  const std::vector<std::string> words = words_of(columns_of().line(row));
  EXPECT_EQ(words.at(5), "N/A");
  EXPECT_EQ(words.at(9), "100.0");
  EXPECT_EQ(words.at(13), "200.0");
}

TEST(PerfTable, WhereNothingGoesFromDeviceToDeviceThereIsNoBandwidth) {
  Row alone = scatter_row();
  alone.device_count = 1;
  Row empty = scatter_row();
  empty.bytes = 0;
  for (const Row& row : {alone, empty}) {
    const std::vector<std::string> words = words_of(columns_of().line(row));
    EXPECT_EQ(words.at(5), "100.0");
    EXPECT_EQ(words.at(6), "N/A");
    EXPECT_EQ(words.at(7), "N/A");
    const Results results = results_of({row});
    EXPECT_EQ(results.average_bus_bandwidth(), std::nullopt);
    EXPECT_NE(format_footer(results).find("average bus bandwidth: N/A"), std::string::npos);
    const auto document = nlohmann::json::parse(to_json({}, results, {}));
    EXPECT_TRUE(document["summary"]["average_busbw_gbps"].is_null());
    EXPECT_TRUE(document["rows"][0]["out_of_place"]["algbw_gbps"].is_null());
    EXPECT_TRUE(document["rows"][0]["out_of_place"]["busbw_gbps"].is_null());
  }
  EXPECT_EQ(results_of({alone, scatter_row(), empty}).average_bus_bandwidth(), 60.0);
}

TEST(PerfTable, RanksAndTheirDevicesAreToldApart) {
  Results results = results_of_ranks();
  const std::string devices = format_members(results.job);
  EXPECT_NE(devices.find("member 1: rank 0 on node0, process 100, its own a device 1\n"), std::string::npos)
      << devices;
  EXPECT_NE(devices.find("member 2: rank 1 on node1, process 101, its own a device 0\n"), std::string::npos)
      << devices;
  EXPECT_NE(format_header({}, results).find("# seen by rank 0:\n"), std::string::npos);
  results.job.groups = 2;
  results.job.members[2].pci_bus_id = "0000:07:00.0";
  EXPECT_NE(format_members(results.job)
                .find("member 2: rank 1 (group 1) on node1, process 101, device 0 a device 0000:07:00.0\n"),
            std::string::npos);
}

TEST(PerfTable, OfGroupsOfRanksTheTimeIsTheOneThatIsAskedFor) {
  Results results = results_of_ranks();
  results.job.groups = 2;
  for (const auto& [how, expected] : {std::pair{OverRanks::maximum, "those on the slowest rank\n"},
                                      std::pair{OverRanks::minimum, "those on the fastest rank\n"},
                                      std::pair{OverRanks::average, "those on average over ranks\n"},
                                      std::pair{OverRanks::rank0, "those on rank 0\n"}}) {
    Options options;
    options.timing.over_ranks = how;
    const std::string header = format_header(options, results);
    EXPECT_NE(header.find(expected), std::string::npos) << header;
  }
}

TEST(PerfTable, HeaderShowsTheDevicesThatTakePart) {
  Results results = results_of({});
  results.topology.devices.resize(8);
  results.topology.peers.resize(8, std::vector<PeerLink>(8));
  results.devices_shown = 2;
  const std::string header = format_header({}, results);
  EXPECT_NE(header.find("# 2 devices"), std::string::npos) << header;
  EXPECT_EQ(header.find("  7 "), std::string::npos) << header;
}

TEST(PerfTable, WhatHasNoMemoryIsToldInOneSentenceAndCounted) {
  Results results = results_of({scatter_row()});
  results.skipped.push_back({"scatter 8", "too small", Skipped::Cause::too_small});
  results.skipped.push_back(
      {"scatter 1G", "out of memory on device 0. Free tensors.", Skipped::Cause::out_of_memory});
  EXPECT_EQ(format_skipped(results.skipped.back()),
            "# not measured: scatter 1G: out of memory on device 0\n");
  EXPECT_NE(format_footer(results).find("# not measured: 2 case(s), 1 of them for lack of memory\n"),
            std::string::npos);
  const auto document = nlohmann::json::parse(to_json({}, results, {}));
  EXPECT_EQ(document["not_measured"][0]["cause"], "too_small");
  EXPECT_EQ(document["not_measured"][1]["cause"], "out_of_memory");
  EXPECT_EQ(document["not_measured"][1]["reason"], "out of memory on device 0. Free tensors.");
}

TEST(PerfTable, HeaderSaysWhereTheRanksAreAndWhatStartingTook) {
  const std::string header = format_header({}, results_of_ranks());
  for (const char* expected : {"2 rank(s) with 2 ", "on the slowest rank", "2 on 2 host(s)",
                               "member 3: rank 1 on node1, process 101, its own a device 1",
                               "devices ready 2.0 ms", "communicator 5.0 ms", "complete 20.0 ms after\n"}) {
    EXPECT_NE(header.find(expected), std::string::npos) << expected << " is not in:\n" << header;
  }
  EXPECT_EQ(format_header({}, results_of({})).find("rank"), std::string::npos);
}

TEST(PerfTable, FooterCountsWrongElementsAndWhatWasNotMeasured) {
  Row row = scatter_row();
  row.out_of_place->wrong = 3;
  Results results = results_of({row});
  results.skipped.push_back({"scatter 8", "reason", Skipped::Cause::refused});
  const std::string footer = format_footer(results);
  EXPECT_NE(footer.find("wrong elements: 3 FAILED"), std::string::npos) << footer;
  EXPECT_NE(footer.find("not measured: 1"), std::string::npos) << footer;
  EXPECT_NE(footer.find("average bus bandwidth: 60.000"), std::string::npos) << footer;
  EXPECT_NE(format_footer(results_of({scatter_row()})).find("wrong elements: 0 OK"), std::string::npos);
  Row unchecked = scatter_row();
  unchecked.out_of_place->wrong.reset();
  unchecked.in_place.reset();
  EXPECT_NE(format_footer(results_of({unchecked})).find("wrong elements: not checked"), std::string::npos);
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
  const std::string text = format_pair_matrices(rows);
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

}  // namespace
}  // namespace tutti::perf
