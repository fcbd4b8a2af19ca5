// SPDX-License-Identifier: Apache-2.0
#include "perf/options/parsed_options.hpp"
#include "perf/options/usage_errors.hpp"

#include <string>
#include <utility>

#include <gtest/gtest.h>

/// What is measured besides times, and where it goes.
namespace tutti::perf {
namespace {

TEST(PerfReportOptions, TimesOfRanksAreTheSlowestOnesUnlessAnotherIsAskedFor) {
  EXPECT_EQ(parsed({"all"}).timing.over_ranks, OverRanks::maximum);
  for (const auto& [text, how] :
       {std::pair{"0", OverRanks::rank0}, std::pair{"rank0", OverRanks::rank0},
        std::pair{"1", OverRanks::average}, std::pair{"average", OverRanks::average},
        std::pair{"2", OverRanks::minimum}, std::pair{"min", OverRanks::minimum},
        std::pair{"3", OverRanks::maximum}, std::pair{"max", OverRanks::maximum}}) {
    EXPECT_EQ(parsed({"all", "-a", text}).timing.over_ranks, how) << text;
    EXPECT_EQ(parsed({"all", "--average", text}).timing.over_ranks, how) << text;
  }
  EXPECT_EQ(usage_error_of([] {
              parsed({"all", "-a", "4"});
            }),
            "-a: '4' is not valid: expected max, min, average, rank0, 3, 2, 1 or 0");
}

TEST(PerfReportOptions, TheFirstLatenciesMayBeLeftOutButNotAll) {
  EXPECT_EQ(parsed({"all"}).timing.skipped, 0);
  EXPECT_EQ(parsed({"all", "-K", "5"}).timing.skipped, 5);
  EXPECT_EQ(parsed({"all", "-n", "6", "--per_iter_skip", "5"}).timing.skipped, 5);
  EXPECT_EQ(usage_error_of([] {
              parsed({"all", "-n", "5", "-K", "5"});
            }),
            "-K: 5 of 5 latencies are left out, expected fewer");
  EXPECT_EQ(usage_error_of([] {
              parsed({"all", "-G", "5", "-K", "6"});
            }),
            "-K: 6 of 5 latencies are left out, expected fewer");
}

TEST(PerfReportOptions, ColumnsAreAddedByOneAndZero) {
  EXPECT_FALSE(parsed({"all"}).shows_spread);
  EXPECT_TRUE(parsed({"all", "-I", "1"}).shows_spread);
  EXPECT_FALSE(parsed({"all", "--per_iter_timing", "0"}).shows_spread);
  EXPECT_FALSE(parsed({"all"}).shows_timestamps);
  EXPECT_TRUE(parsed({"all", "-S", "1"}).shows_timestamps);
  EXPECT_FALSE(parsed({"all", "--report_timestamps", "0"}).shows_timestamps);
  EXPECT_NE(usage_error_of([] { parsed({"all", "-S", "2"}); }).find("-S"), std::string::npos);
  EXPECT_NE(usage_error_of([] { parsed({"all", "-I", "yes"}); }).find("-I"), std::string::npos);
}

TEST(PerfReportOptions, FilesAreOfMeasurements) {
  const Options options = parsed({"all", "-J", "a.json", "--baseline", "c.json", "--tolerance", "2.5"});
  EXPECT_EQ(options.json_file, "a.json");
  EXPECT_EQ(options.baseline_file, "c.json");
  EXPECT_EQ(options.tolerance, 2.5);
  EXPECT_EQ(parsed({"all", "--baseline", "c.json"}).tolerance, 3.0);
  EXPECT_EQ(usage_error_of([] {
              parsed({"topo", "-J", "a.json"});
            }),
            "-J writes what has been measured: expected an operation to measure");
  EXPECT_EQ(usage_error_of([] {
              parsed({"explain", "broadcast", "1M", "--baseline", "c.json"});
            }),
            "--baseline compares what has been measured: expected an operation to measure");
  EXPECT_EQ(usage_error_of([] {
              parsed({"all", "--tolerance", "5"});
            }),
            "--tolerance needs a comparison: expected --baseline with it");
  for (const char* const wrong : {"-1", "x", "3%", "inf", "nan"}) {
    EXPECT_EQ(usage_error_of([wrong] {
                parsed({"all", "--baseline", "c.json", "--tolerance", wrong});
              }),
              std::string("--tolerance: '") + wrong + "' is not valid: expected per cent, 0 or more");
  }
}

}  // namespace
}  // namespace tutti::perf
