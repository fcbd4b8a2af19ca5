// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/exit_status.hpp"
#include "perf/program/program.hpp"
#include "tutti/device.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

Outcome run(std::vector<std::string> words) {
  words.insert(words.begin(), std::getenv("TUTTI_BESIDE_PRODUCT"));
  return outcome_of(std::move(words));
}

TEST(BesideProduct, MeasuresAndChecksEveryCollectiveAndBound) {
  const std::string file = temporary("beside.json");
  // Both take the devices some 100 µs, which is far longer than the host takes to queue them.
  const Outcome outcome = run({"-b", "32M", "-n", "4096", "-r", "1", "-t", "2", "-J", file});
  if (backend_kind() != BackendKind::cuda || device_count() < 2) {
    EXPECT_EQ(outcome.status, bad_usage);
    EXPECT_NE(outcome.error.find("GPUs, expected 2 or more"), std::string::npos) << outcome.error;
    return;
  }
  EXPECT_EQ(outcome.status, all_right) << outcome.error;
  const nlohmann::json document = nlohmann::json::parse(content_of(file), nullptr, false);
  unlink(file.c_str());
  std::set<std::string> operations;
  for (const auto& row : document["rows"]) {
    operations.insert(row["operation"].get<std::string>());
    EXPECT_EQ(row["wrong"], 0);
    for (const char* const side : {"collective", "product"}) {
      EXPECT_GT(row[side]["alone_us"].get<double>(), 0);
      EXPECT_GT(row[side]["beside_us"].get<double>(), 0);
    }
  }
  EXPECT_EQ(operations, (std::set<std::string>{"all_gather", "all_reduce_add", "broadcast"}));
}

TEST(BesideProduct, WorkThatIsTooShortToMeasureIsToldOf) {
  if (backend_kind() != BackendKind::cuda || device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const Outcome outcome = run({"-b", "1K", "-n", "16", "-r", "1", "-t", "2"});
  EXPECT_EQ(outcome.status, run_failed);
  EXPECT_NE(outcome.error.find("longer than they take the host to queue"), std::string::npos)
      << outcome.error;
}

TEST(BesideProduct, AWrongOptionIsToldOf) {
  const Outcome outcome = run({"-n", "4"});
  EXPECT_EQ(outcome.status, bad_usage);
  EXPECT_NE(outcome.error.find("-n"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace tutti::perf
