// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/failure.hpp"
#include "perf/program/program.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// How often, how long and on what memory tutti-perf measures, in one process of virtual devices.
namespace tutti::perf {
namespace {

std::vector<std::string> command(std::vector<std::string> words) {
  words.insert(words.begin(), std::getenv("TUTTI_PERF_PROGRAM"));
  return words;
}

/// A run, and what it has written as JSON.
struct Written {
  Outcome outcome;
  nlohmann::json document;
};
Written run(std::vector<std::string> words) {
  const std::string json = temporary("runs.json");
  words.insert(words.end(), {"--devices", "3", "-J", json});
  Written done{outcome_of(command(std::move(words))), {}};
  done.document = nlohmann::json::parse(content_of(json), nullptr, false);
  unlink(json.c_str());
  return done;
}

TEST(PerfRuns, CyclesMeasureAllOnceMore) {
  const Written twice =
      run({"broadcast", "-b", "1K", "-e", "2K", "-n", "1", "--repetitions", "1", "-N", "2"});
  EXPECT_EQ(twice.outcome.status, all_right) << twice.outcome.error;
  EXPECT_NE(twice.outcome.out.find("# cycle 2\n"), std::string::npos) << twice.outcome.out;
  std::vector<int> cycles;
  for (const auto& row : twice.document["rows"]) cycles.push_back(row["cycle"]);
  EXPECT_EQ(cycles, (std::vector<int>{1, 1, 2, 2}));
}

TEST(PerfRuns, EndlessCyclesEndWellWhenTheyAreInterrupted) {
  const std::string json = temporary("endless.json");
  const Program program(command({"broadcast", "-b", "1K", "-e", "1K", "-n", "1", "--repetitions", "1", "-N",
                                 "0", "--devices", "2", "-J", json}));
  program.wait_for("# cycle 3\n");
  program.interrupt();
  EXPECT_EQ(program.wait(), all_right) << program.error();
  EXPECT_EQ(program.error().find("tutti-perf: "), std::string::npos) << program.error();
  EXPECT_GE(nlohmann::json::parse(content_of(json))["rows"].size(), 2U);
  unlink(json.c_str());
}

TEST(PerfRuns, ARowThatTakesTooLongEndsTheRun) {
  const Written late = run({"broadcast", "-b", "16M", "-e", "16M", "-n", "1000000", "-T", "1"});
  EXPECT_EQ(late.outcome.status, timed_out);
  EXPECT_NE(late.outcome.error.find("-T: broadcast 16M float32 root 0 has taken more than 1 s"),
            std::string::npos)
      << late.outcome.error;
  EXPECT_EQ(late.document["rows"].size(), 0U);
  EXPECT_NE(late.document["summary"]["failure"].get<std::string>().find("-T: "), std::string::npos);
  EXPECT_EQ(run({"broadcast", "-b", "1K", "-e", "1K", "-n", "2", "-T", "60"}).outcome.status, all_right);
}

TEST(PerfRuns, LaunchesOfSeveralCallsAreDividedByThem) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--persistent"},
        std::vector<std::string>{"-G", "3"}}) {
    std::vector<std::string> words{"reduce_add", "all_reduce_add", "-b", "4K", "-e", "4K", "-m",
                                   "4",          "--repetitions",  "1"};
    if (more != std::vector<std::string>{"-G", "3"}) words.insert(words.end(), {"-n", "3"});
    words.insert(words.end(), more.begin(), more.end());
    const Written run_of_four = run(words);
    EXPECT_EQ(run_of_four.outcome.status, all_right) << run_of_four.outcome.error;
    EXPECT_NE(run_of_four.outcome.out.find("# a launch is 4 calls"), std::string::npos);
    ASSERT_EQ(run_of_four.document["rows"].size(), 2U);
    for (const auto& row : run_of_four.document["rows"]) {
      EXPECT_EQ(row["out_of_place"]["iterations"], 12) << row;
      EXPECT_EQ(row["out_of_place"]["wrong"], 0) << row;
      EXPECT_EQ(row["in_place"]["wrong"], 0) << row;
    }
  }
}

TEST(PerfRuns, OperandsThatBeginOffAlignmentAreRight) {
  const Written off = run(
      {"all", "-b", "4", "-e", "4K", "-f", "1024", "-d", "int8", "-u", "3", "-n", "2", "--repetitions", "1"});
  EXPECT_EQ(off.outcome.status, all_right) << off.outcome.error;
  EXPECT_NE(off.outcome.out.find("# tensors begin with element 3"), std::string::npos);
  EXPECT_EQ(off.document["settings"]["first_element"], 3);
  EXPECT_EQ(off.document["summary"]["wrong"], 0);
}

TEST(PerfRuns, OperandsOfEachKindOfMemoryAreRight) {
  for (const std::string memory : {"cuda", "registered", "expandable"}) {
    const Written in_it = run(
        {"all", "-b", "4", "-e", "4M", "-f", "1048576", "--memory", memory, "-n", "2", "--repetitions", "1"});
    EXPECT_EQ(in_it.outcome.status, all_right) << in_it.outcome.error;
    EXPECT_NE(in_it.outcome.out.find("# operands are in " + memory + " memory"), std::string::npos);
    EXPECT_EQ(in_it.document["settings"]["memory"], memory);
    EXPECT_EQ(in_it.document["rows"][0]["memory"], memory);
    EXPECT_EQ(in_it.document["summary"]["wrong"], 0);
  }
}

}  // namespace
}  // namespace tutti::perf
