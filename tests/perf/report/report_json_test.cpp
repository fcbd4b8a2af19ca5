// SPDX-License-Identifier: Apache-2.0
#include "perf/report/json.hpp"
#include "perf/report/reported_rows.hpp"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfJson, HasTheSchemaAndEveryFigure) {
  Row peer = scatter_row();
  peer.peer = "nccl";
  peer.peer_mode = "R2";
  peer.out_of_place->over_tutti = 2.0;
  peer.out_of_place->is_fastest_peer = true;
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
  EXPECT_EQ(document["rows"][1]["mode"], "R2");
  EXPECT_EQ(document["rows"][1]["fastest"], true);
  EXPECT_TRUE(row["mode"].is_null());
  EXPECT_EQ(document["rows"][1]["out_of_place"]["fastest"], true);
  EXPECT_DOUBLE_EQ(document["rows"][1]["out_of_place"]["time_over_tutti"], 2.0);
  EXPECT_FALSE(row.contains("fastest"));
  EXPECT_FALSE(row["out_of_place"].contains("fastest"));
}

TEST(PerfJson, SaysWhereWhenAndWithWhatItWasMeasured) {
  Results results = results_of({});
  results.provenance.date = "2026-01-02T03:04Z";
  results.provenance.commit = "abc1234";
  results.provenance.host = "node0";
  results.provenance.driver = "580.95";
  results.provenance.nccl_library = "/opt/nccl/libnccl.so.2";
  const auto document = nlohmann::json::parse(to_json({}, results, {}));
  EXPECT_EQ(document["date"], "2026-01-02T03:04Z");
  EXPECT_EQ(document["commit"], "abc1234");
  EXPECT_EQ(document["host"], "node0");
  EXPECT_EQ(document["nccl_library"], "/opt/nccl/libnccl.so.2");
  EXPECT_EQ(document["driver"], "580.95");
  EXPECT_TRUE(document["cuda"].is_null());  // unknown
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
  const auto alone = nlohmann::json::parse(to_json({}, results_of({}), {}));
  EXPECT_EQ(alone["mode"], "single_process");
  EXPECT_TRUE(alone["start_up_ms"].is_null());
}

TEST(PerfJson, LeaksNoOtherEnvironment) {
  const char* const secrets[] = {"TUTTI_SECRET", "TUTTI_SECRET_TOKEN", "NCCL_secret", "CUDA_API_KEY",
                                 "TUTTI_PASSWORD"};
  for (const char* const name : secrets) ::setenv(name, "do-not-tell", 1);
  const char* const told[] = {"NCCL_ALGO",           "NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE",
                              "NCCL_WIN_ENABLE",     "NCCL_CTA_POLICY",  "NCCL_LOCAL_REGISTER",
                              "NCCL_GRAPH_REGISTER", "TUTTI_ROUNDS"};
  for (const char* const name : told) ::setenv(name, "as found", 1);
  const std::string text = to_json({}, results_of({}), {});
  for (const char* const name : secrets) ::unsetenv(name);
  EXPECT_EQ(text.find("do-not-tell"), std::string::npos);
  for (const char* const name : told) {
    ::unsetenv(name);
    EXPECT_EQ(nlohmann::json::parse(text)["environment"][name], "as found");
  }
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
