// SPDX-License-Identifier: Apache-2.0
#include "perf/launched_as.hpp"

#include <map>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

LaunchedAs launched_with(const std::map<std::string, std::string>& environment) {
  return launched_as([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(PerfLaunchedAs, NothingIsAlone) {
  EXPECT_FALSE(launched_with({}).by_launcher);
}

TEST(PerfLaunchedAs, KnowsWhatLaunchersTell) {
  const std::pair<const char*, const char*> launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                                           {"PMI_SIZE", "PMI_RANK"},
                                                           {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},
                                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
  for (const auto& [size, rank] : launchers) {
    const LaunchedAs launched = launched_with({{size, "4"}, {rank, "3"}});
    EXPECT_TRUE(launched.by_launcher) << size;
    EXPECT_EQ(launched.size, 4) << size;
    EXPECT_EQ(launched.rank, 3) << size;
  }
  EXPECT_TRUE(launched_with({{"PMIX_RANK", "1"}}).by_launcher);
  EXPECT_EQ(launched_with({{"PMIX_RANK", "1"}}).rank, 1);
}

TEST(PerfLaunchedAs, ASingleRankOfMpirunIsARank) {
  EXPECT_TRUE(launched_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).by_launcher);
}

TEST(PerfLaunchedAs, ABatchScriptAndAnInteractiveStepAreAlone) {
  EXPECT_FALSE(launched_with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).by_launcher);
  EXPECT_FALSE(launched_with({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}).by_launcher);
}

TEST(PerfLaunchedAs, NonsenseIsNoLauncher) {
  EXPECT_FALSE(launched_with({{"PMI_SIZE", "many"}, {"PMI_RANK", "0"}}).by_launcher);
  EXPECT_FALSE(launched_with({{"PMI_SIZE", "4"}, {"PMI_RANK", ""}}).by_launcher);
}

}  // namespace
}  // namespace tutti::perf
