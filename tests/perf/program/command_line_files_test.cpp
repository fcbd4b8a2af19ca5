// SPDX-License-Identifier: Apache-2.0
#include "perf/program/program.hpp"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Files that tutti-perf writes and reads.
namespace tutti::perf {
namespace {

/// Of a short run on two virtual devices, with `more` arguments.
Outcome short_run(const std::vector<std::string>& more) {
  const char* const path = std::getenv("TUTTI_PERF_PROGRAM");
  std::vector<std::string> words{path != nullptr ? path : "tutti-perf",
                                 "broadcast",
                                 "all_reduce",
                                 "-b",
                                 "1K",
                                 "-e",
                                 "1K",
                                 "-n",
                                 "5",
                                 "--devices",
                                 "2"};
  words.insert(words.end(), more.begin(), more.end());
  return outcome_of(words);
}

/// All times of a document, as if they had been `factor` times as long.
void stretch(nlohmann::json& document, double factor) {
  for (auto& row : document["rows"]) {
    for (const char* const placement : {"out_of_place", "in_place"}) {
      auto& median = row[placement]["back_to_back_us"]["median"];
      median = median.get<double>() * factor;
    }
  }
}

TEST(PerfFiles, ARunIsComparedWithAnOlderOne) {
  const std::string before = temporary("before.json");
  const std::string after = temporary("after.json");
  ASSERT_EQ(short_run({"-J", before}).status, 0);
  auto document = nlohmann::json::parse(content_of(before));

  stretch(document, 1e6);
  std::ofstream(before) << document;
  const Outcome faster = short_run({"--baseline", before, "-J", after, "-m", "2"});
  EXPECT_EQ(faster.status, 0) << faster.error;
  EXPECT_NE(faster.out.find("4 time(s) compared, 0 slower by more than 3 %\n"), std::string::npos)
      << faster.out;
  const auto compared = nlohmann::json::parse(content_of(after))["baseline"];
  EXPECT_EQ(compared["compared"], 4);

  stretch(document, 1e-12);
  document["rows"][1]["size"] = 4;
  std::ofstream(before) << document;
  const Outcome slower = short_run({"--baseline", before, "--tolerance", "50", "-J", after});
  EXPECT_EQ(slower.status, 3) << slower.out;
  expect_one_line_about(slower.error,
                        "2 of 2 time(s) slower than the baseline by more than 50 %, most broadcast");
  EXPECT_NE(slower.out.find("#   not in the baseline: 2 time(s), first all_reduce_add 1K float32\n"),
            std::string::npos)
      << slower.out;
  EXPECT_NE(slower.out.find("#   in the baseline alone: 2 time(s)\n"), std::string::npos) << slower.out;
  unlink(before.c_str());
  unlink(after.c_str());
}

TEST(PerfFiles, ABaselineThatIsNoneIsFoundBeforeTheRun) {
  const Outcome outcome = short_run({"--baseline", "/no/such/file"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  expect_one_line_about(outcome.error, "--baseline: '/no/such/file' cannot be read: No such file");
}

TEST(PerfFiles, VirtualDevicesHaveNoClocksAndAreNotThrottled) {
  const std::string json = temporary("devices.json");
  const Outcome outcome = short_run({"-J", json, "-S", "1", "-I", "1", "-K", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_EQ(outcome.out.find("throttled"), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  unlink(json.c_str());
  ASSERT_EQ(document["members"].size(), 2U);
  for (const auto& member : document["members"]) {
    EXPECT_TRUE(member["throttled"].is_null());
    for (const char* const moment : {"before", "after"}) {
      for (const char* const figure : {"sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c"})
        EXPECT_TRUE(member[moment].at(figure).is_null()) << figure;
    }
  }
  const auto& latency = document["rows"][0]["in_place"]["latency_us"];
  EXPECT_EQ(latency["samples"], 3);
  EXPECT_EQ(latency["each"].size(), 5U);
  EXPECT_GE(document["rows"][1]["timestamp"], document["rows"][0]["timestamp"]);
  EXPECT_GE(document["rows"][0]["timestamp"].get<std::string>().substr(0, 16),
            document["date"].get<std::string>().substr(0, 16));
}

}  // namespace
}  // namespace tutti::perf
