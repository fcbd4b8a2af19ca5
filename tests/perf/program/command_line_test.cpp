// SPDX-License-Identifier: Apache-2.0
#include "perf/program/program.hpp"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// tutti-perf as a user sees it.
namespace tutti::perf {
namespace {

std::vector<std::string> tutti_perf(const std::vector<std::string>& words) {
  const char* const path = std::getenv("TUTTI_PERF_PROGRAM");
  std::vector<std::string> all{path != nullptr ? path : "tutti-perf"};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

Outcome run(const std::vector<std::string>& words) {
  return outcome_of(tutti_perf(words));
}

/// Every element has been checked, where there are some.
void expect_right(const nlohmann::json& rows) {
  for (const auto& row : rows) {
    const auto& wrong = row["out_of_place"]["wrong"];
    if (row["operation"] == "barrier") {
      EXPECT_TRUE(wrong.is_null()) << row;
    } else {
      EXPECT_EQ(wrong, 0) << row;
    }
  }
}

/// Between the pairs that there are: none.
TEST(PerfCommandLine, CopiesAmongOtherOperationsNeedNoSecondDevice) {
  for (const auto& operations :
       {std::vector<std::string>{"sendrecv", "broadcast"}, {"broadcast", "sendrecv"}}) {
    std::vector<std::string> words = operations;
    words.insert(words.end(), {"--devices", "1", "-b", "8", "-e", "8", "-n", "1"});
    EXPECT_EQ(run(words).status, 0) << operations[0];
  }
}

TEST(PerfCommandLine, MistakesAreOneLineAndStatusTwo) {
  const std::pair<std::vector<std::string>, const char*> mistakes[] = {
      {{"broadcast", "--no-such-flag"}, "--no-such-flag"},
      {{"broadcast", "-b", "12Q"}, "12Q"},
      {{"explain", "all_reduce_add", "1000G"}, "bytes is 1073741824000"},
      {{"explain", "all_reduce_add", "1M", "--devices", "2", "--transport", "nccl"}, "nccl"},
      {{"explain", "reduce_add", "1M", "--topology", "pcie", "--transport", "p2p"},
       "reduce: transport is p2p, which cannot carry this call"},
      {{"broadcast", "--devices", "4", "-g", "5"}, "-g: 5"},
      {{"broadcast", "--devices", "4", "-r", "4"}, "-r: root 4"},
      {{"broadcast", "--topology", "no-such-topology"}, "no-such-topology"},
      {{"broadcast", "--backend", "host", "--peer", "nccl"}, "--peer nccl:"},
      {{"broadcast", "--topology", testing::TempDir()}, "--topology: "},
      {{"broadcast_coalesced", "--tensors", testing::TempDir()}, "--tensors: "},
      {{"broadcast", "--devices", "2", "-J", "/no/such/directory/file"}, "/no/such/directory/file"},
      {{"sendrecv", "--devices", "1"}, "sendrecv needs two devices"},
      {{"broadcast", "--devices", "2", "--baseline", "/"}, "--baseline: '/' cannot be read: Is a directory"},
  };
  for (const auto& [words, about] : mistakes) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 2) << about;
    EXPECT_EQ(outcome.out, "");
    expect_one_line_about(outcome.error, about);
  }
}

TEST(PerfCommandLine, AMistakeLeavesTheFileOfTheLastRunAlone) {
  const std::string json = temporary("kept.json");
  std::ofstream(json) << "figures";
  for (const char* root : {"4", "x"}) {
    EXPECT_EQ(run({"broadcast", "--devices", "4", "-r", root, "-J", json}).status, 2);
    EXPECT_EQ(content_of(json), "figures");
  }
  const Outcome outcome = run({"broadcast", "--devices", "2", "-b", "8", "-e", "8", "-n", "1", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(nlohmann::json::parse(content_of(json))["rows"].size(), 1U);
}

TEST(PerfCommandLine, ATensorListWithAMistakeIsNamedWithItsLine) {
  const std::string list = temporary("list");
  std::ofstream(list) << "64x3\n7xx\n";
  const Outcome outcome = run({"broadcast_coalesced", "--tensors", list});
  EXPECT_EQ(outcome.status, 2);
  expect_one_line_about(outcome.error, list + ":2: '7xx'");
}

TEST(PerfCommandLine, EveryOperationIsRightOnVirtualDevices) {
  const std::string json = temporary("all.json");
  const Outcome outcome = run({"all", "-b", "0", "-e", "30000", "-i", "10000", "--dim", "all", "-n", "2",
                               "--repetitions", "1", "--devices", "4", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.error, "");
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["schema"], "tutti-perf/2");
  EXPECT_EQ(document["summary"]["wrong"], 0);
  EXPECT_TRUE(document["not_measured"].empty());
  // Seventeen collectives of four sizes, two of them along two dimensions, a barrier, and twelve pairs at two
  // sizes.
  EXPECT_EQ(document["rows"].size(), 19U * 4U + 1U + 12U * 2U);
  expect_right(document["rows"]);
}

TEST(PerfCommandLine, EveryElementTypeAndRootIsRight) {
  for (const char* operation :
       {"reduce_add", "broadcast", "gather", "all_reduce_add", "reduce_scatter_add"}) {
    const Outcome outcome = run({operation, "-d", "all", "-r", "all", "-b", "10000", "-e", "10000", "-n", "1",
                                 "--repetitions", "1", "--devices", "3"});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  }
}

TEST(PerfCommandLine, EveryReductionOfEveryElementTypeIsRight) {
  for (const char* operation : {"reduce", "all_reduce", "reduce_scatter"}) {
    const std::string json = temporary("reductions.json");
    const Outcome outcome = run({operation, "-d", "all", "-o", "all", "-b", "10000", "-e", "10000", "-n", "1",
                                 "--repetitions", "1", "--devices", "3", "-J", json});
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
    std::map<std::string, int> rows;
    const auto document = nlohmann::json::parse(content_of(json));
    for (const auto& row : document["rows"]) ++rows[row["redop"]];
    // 17 types: one is bool, two are complex, and nine have bits.
    const std::map<std::string, int> expected{{"sum", 17}, {"avg", 16}, {"premul_sum", 16},
                                              {"min", 15}, {"max", 15}, {"prod", 17},
                                              {"band", 9}, {"bor", 9},  {"bxor", 9}};
    EXPECT_EQ(rows, expected);
  }
}

TEST(PerfCommandLine, AReductionThatIsCompiledIsRight) {
  const std::string json = temporary("compiled.json");
  const Outcome outcome = run({"reduce",
                               "all_reduce",
                               "reduce_scatter_add_unequal",
                               "-d",
                               "int16",
                               "-o",
                               "absmax",
                               "-b",
                               "10K",
                               "-e",
                               "100K",
                               "-f",
                               "10",
                               "-n",
                               "1",
                               "--repetitions",
                               "1",
                               "--devices",
                               "3",
                               "-J",
                               json});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["rows"].size(), 6U);
  for (const auto& row : document["rows"]) EXPECT_EQ(row["redop"], "absmax");
  expect_right(document["rows"]);
}

TEST(PerfCommandLine, TensorsHaveTheirBytesWhateverTheirType) {
  const std::string json = temporary("types.json");
  const Outcome outcome = run({"broadcast_coalesced", "--tensors", "10x1K", "-d", "all", "-n", "1",
                               "--repetitions", "1", "--devices", "2", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_GT(document["rows"].size(), 10U);
  for (const auto& row : document["rows"]) EXPECT_EQ(row.at("size"), 10 * 1024) << row;
}

TEST(PerfCommandLine, PersistentLaunchesAreRight) {
  for (const bool replays : {false, true}) {
    std::vector<std::string> words{"all", "-b", "4K", "-e", "64K", "-f", "16", "--devices", "4"};
    words.insert(words.end(), {"--repetitions", "2"});
    if (replays) {
      words.insert(words.end(), {"-G", "2"});
    } else {
      words.insert(words.end(), {"--persistent", "-n", "3"});
    }
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
    EXPECT_NE(outcome.out.find(", persistent, "), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("not measured"), std::string::npos) << outcome.out;
    // Several calls of a communicator in a graph, or each bound.
    EXPECT_EQ(outcome.out.find(", replayed") != std::string::npos, replays) << outcome.out;
  }
}

TEST(PerfCommandLine, ReturnedResultsAreRight) {
  const std::string json = temporary("returned.json");
  const Outcome outcome = run({"all",   "-b",        "0",  "-e",        "30000", "-i", "10000",
                               "--dim", "all",       "-r", "1",         "-n",    "2",  "--repetitions",
                               "1",     "--devices", "3",  "--results", "new",   "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_NE(outcome.out.find("results are new tensors"), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["settings"]["results"], "new");
  EXPECT_TRUE(document["not_measured"].empty()) << document["not_measured"];
  expect_right(document["rows"]);
}

TEST(PerfCommandLine, WrongElementsAreFoundAndAreStatusOne) {
  for (const auto& [operation, form] : {std::pair{"broadcast", "out"}, std::pair{"broadcast", "new"},
                                        std::pair{"all_reduce_add", "out"}, std::pair{"all_to_all", "new"}}) {
    const Outcome outcome = outcome_of({std::getenv("TUTTI_PERF_DAMAGING"), operation, "-b", "64K", "-e",
                                        "64K", "-n", "2", "--devices", "2", "--results", form});
    EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.error;
    EXPECT_NE(outcome.out.find("FAILED"), std::string::npos) << outcome.out;
  }
}

TEST(PerfCommandLine, WhatThereIsNoMemoryForIsLeftOutAndTheRunGoesOn) {
  const std::string json = temporary("memory.json");
  const Outcome outcome = run({"broadcast", "gather", "sendrecv", "all_reduce", "-b", "4K", "-e", "4G", "-f",
                               "1048576", "-n", "1", "--repetitions", "1", "--devices", "2", "-J", json});
  EXPECT_EQ(outcome.status, 5) << outcome.out;
  expect_one_line_about(outcome.error, "5 case(s) not measured for lack of memory, first broadcast 4G");
  EXPECT_NE(outcome.error.find("TUTTI_VIRTUAL_MEMORY"), std::string::npos) << outcome.error;
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["rows"].size(), 5U);  // one of each collective, two pairs
  ASSERT_EQ(document["not_measured"].size(), 5U);
  for (const auto& skipped : document["not_measured"])
    EXPECT_EQ(skipped["cause"], "out_of_memory") << skipped;
  EXPECT_TRUE(document["summary"]["failure"].is_null());
}

TEST(PerfCommandLine, WhatFitsInPlaceOnlyIsMeasuredInPlace) {
  setenv("TUTTI_VIRTUAL_MEMORY", "96M", 1);
  const Outcome outcome =
      run({"reduce_add", "-b", "64M", "-e", "64M", "-n", "1", "--repetitions", "1", "--devices", "2"});
  unsetenv("TUTTI_VIRTUAL_MEMORY");
  EXPECT_EQ(outcome.status, 5) << outcome.error;
  EXPECT_NE(outcome.out.find("# not measured: reduce_add 64M float32 root 0 out of place: out of memory"),
            std::string::npos)
      << outcome.out;
  EXPECT_NE(outcome.out.find("67108864"), std::string::npos) << outcome.out;
}

TEST(PerfCommandLine, WhereNothingFitsTheRunHasFailed) {
  const Outcome outcome = run({"broadcast", "-b", "4G", "-e", "4G", "-n", "1", "--devices", "2"});
  EXPECT_EQ(outcome.status, 5) << outcome.out;
  expect_one_line_about(outcome.error, "1 case(s) not measured for lack of memory");
}

TEST(PerfCommandLine, OneDeviceHasTimesAndNoBandwidths) {
  const Outcome outcome = run({"broadcast", "-b", "1M", "-e", "1M", "-n", "1", "--devices", "2", "-g", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("# average bus bandwidth: N/A"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("# 1 device"), std::string::npos) << outcome.out;  // of the two that there are
}

TEST(PerfCommandLine, LessThanAnElementIsSaidAndNotMeasured) {
  const Outcome outcome =
      run({"broadcast", "all_gather", "-b", "3", "-e", "24", "-n", "1", "--devices", "4"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const char* expected :
       {"# not measured: broadcast 3 float32 root 0: 3 bytes are less than one float32 element (4)\n",
        "# not measured: all_gather 12 float32: 12 bytes are less than one float32 element for each of 4 "
        "devices (16)\n",
        "# not measured: 4 case(s)\n"})
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << " is not in:\n" << outcome.out;
  for (const auto& words :
       {std::vector<std::string>{"broadcast", "-b", "3", "-e", "3"}, {"explain", "broadcast", "3"}}) {
    const Outcome nothing = run(words);
    EXPECT_EQ(nothing.status, 2) << nothing.out;
    expect_one_line_about(nothing.error, "3 bytes are less than one float32 element (4)");
  }
}

TEST(PerfCommandLine, AReaderThatGoesAwayEndsARunAsCtrlCDoes) {
  const std::string json = temporary("unread.json");
  const Outcome outcome =
      outcome_of({"/bin/bash", "-c",
                  std::string("set -o pipefail; ") + std::getenv("TUTTI_PERF_PROGRAM") +
                      " all -b 1K -e 64M -r all -d all --devices 2 -J " + json + " | head -n 1"});
  EXPECT_EQ(outcome.status, 130);
  expect_one_line_about(outcome.error, "interrupted after ");
  EXPECT_EQ(nlohmann::json::parse(content_of(json))["summary"]["interrupted"], true);
}

TEST(PerfCommandLine, AFullDiskUnderTheTableIsAFailure) {
  const Outcome outcome = outcome_of(
      {"/bin/bash", "-c",
       std::getenv("TUTTI_PERF_PROGRAM") + std::string(" broadcast -b 8 -e 8 -n 1 --devices 2 >/dev/full")});
  EXPECT_EQ(outcome.status, 5);
  expect_one_line_about(outcome.error, "the standard output could not be written");
}

TEST(PerfCommandLine, ATransportThatCarriesNothingIsAMistake) {
  const Outcome outcome = run({"broadcast", "-b", "4K", "-e", "4K", "--devices", "2", "--transport", "nccl"});
  EXPECT_EQ(outcome.status, 2);
  expect_one_line_about(outcome.error, "nothing could be measured");
  EXPECT_NE(outcome.out.find("# not measured: broadcast 4K"), std::string::npos) << outcome.out;
}

TEST(PerfCommandLine, APrintedTensorListCanBeReadBack) {
  const Outcome printed = run({"tensors", "resnet50"});
  EXPECT_EQ(printed.status, 0) << printed.error;
  const std::string list = temporary("resnet50");
  std::ofstream(list) << printed.out;
  EXPECT_EQ(run({"tensors", list}).out, printed.out);
}

TEST(PerfCommandLine, TopologyAndPlansAreShown) {
  const Outcome topology = run({"topo", "--devices", "3"});
  EXPECT_EQ(topology.status, 0) << topology.error;
  EXPECT_FALSE(topology.out.empty());
  const Outcome plan = run({"explain", "broadcast", "64M", "--devices", "3"});
  EXPECT_EQ(plan.status, 0) << plan.error;
  EXPECT_NE(plan.out.find("p2p"), std::string::npos) << plan.out;
  EXPECT_NE(plan.out.find("because: nccl not taken: the devices are virtual\n"), std::string::npos)
      << plan.out;
  const Outcome chunks = run({"explain", "scatter", "64M", "--devices", "3"});
  EXPECT_NE(chunks.out.find("device:0 -> device:1, 22369624 bytes"), std::string::npos) << chunks.out;
  EXPECT_NE(chunks.out.find("device:0 -> device:2, 22369616 bytes"), std::string::npos) << chunks.out;
  const Outcome uneven = run({"explain", "gather", "1001", "-d", "int8", "--devices", "3"});
  EXPECT_NE(uneven.out.find(" 1001 bytes"), std::string::npos) << uneven.out;
  const Outcome minima = run({"explain", "all_reduce", "64M", "-o", "min", "--devices", "3"});
  EXPECT_EQ(minima.status, 0) << minima.error;
  EXPECT_NE(minima.out.find("member 2 takes from members 0, 1 and reduces 3 float32 inputs"),
            std::string::npos)
      << minima.out;
}

TEST(PerfCommandLine, WhatNeedsACommunicatorIsLeftOutWhereThereIsNone) {
  const Outcome outcome = run(
      {"gather", "all_gather", "-b", "4K", "-e", "4K", "-n", "1", "--repetitions", "1", "--devices", "17"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("options.devices has 17 entries"), std::string::npos) << outcome.out;
}

TEST(PerfCommandLine, WhatCopyEnginesCannotDoIsLeftOutAndTheRunGoesOn) {
  const Outcome outcome = run({"broadcast", "all_gather", "barrier", "-b", "4K", "-e", "4K", "-n", "1",
                               "--devices", "2", "--multiprocessors", "0"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const char* const operation : {"all_gather", "barrier"})
    EXPECT_NE(outcome.out.find(std::string("# not measured: ") + operation +
                               ": --multiprocessors 0: operations of communicators need kernels"),
              std::string::npos)
        << outcome.out;
  EXPECT_NE(outcome.out.find(" 4096 "), std::string::npos) << outcome.out;
}

TEST(PerfCommandLine, NcclTestsMayNameARootWhereThereIsNone) {
  for (const char* const operation : {"all_reduce_perf", "sendrecv_perf"}) {
    const Outcome outcome = run({operation, "-b", "4K", "-e", "4K", "-n", "1", "--devices", "2", "-r", "9"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
  }
  EXPECT_EQ(run({"all_reduce_perf", "broadcast", "--devices", "2", "-r", "9"}).status, 2);
}

TEST(PerfCommandLine, CtrlCEndsARunPromptlyAndSaysSo) {
  const Program program(tutti_perf({"broadcast", "-b", "1M", "-e", "1M", "-n", "1000000", "--devices", "2"}));
  program.wait_for("# broadcast");
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  program.interrupt();
  EXPECT_EQ(program.wait(), 130);
  expect_one_line_about(program.error(), "interrupted");
}

/// As `timeout` sends them: to the process, and to its group.
TEST(PerfCommandLine, SignalsThatFollowAtOnceAreTheSameWish) {
  const std::string json = temporary("signals.json");
  const Program program(
      tutti_perf({"broadcast", "-b", "1K", "-e", "1G", "-r", "all", "--devices", "4", "-J", json}));
  program.wait_for(" 1024 ");
  for (const int signal : {SIGTERM, SIGTERM, SIGINT, SIGTERM}) {
    program.signal(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(program.wait(), 130);
  expect_one_line_about(program.error(), "interrupted");
  EXPECT_NE(program.out().find("# interrupted"), std::string::npos) << program.out();
  EXPECT_NE(program.out().find("# average bus bandwidth"), std::string::npos) << program.out();
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_GE(document["rows"].size(), 1U);
  EXPECT_EQ(document["summary"]["interrupted"], true);
}

}  // namespace
}  // namespace tutti::perf
