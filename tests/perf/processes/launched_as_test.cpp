// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/launched_as.hpp"

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
  EXPECT_EQ(launched_with({}).meeting, Meeting::none);
}

TEST(PerfLaunchedAs, KnowsWhatLaunchersTell) {
  const struct {
    const char* size;
    const char* rank;
    Meeting meeting;
  } launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", Meeting::mpi},
                   {"PMI_SIZE", "PMI_RANK", Meeting::mpi},
                   {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", Meeting::mpi},
                   {"WORLD_SIZE", "RANK", Meeting::tcp},
                   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", Meeting::tcp}};
  for (const auto& [size, rank, meeting] : launchers) {
    const LaunchedAs launched = launched_with({{size, "4"}, {rank, "3"}});
    EXPECT_EQ(launched.meeting, meeting) << size;
    EXPECT_EQ(launched.size, 4) << size;
    EXPECT_EQ(launched.rank, 3) << size;
  }
  EXPECT_EQ(launched_with({{"PMIX_RANK", "1"}}).meeting, Meeting::mpi);
  EXPECT_EQ(launched_with({{"PMIX_RANK", "1"}}).rank, 1);
}

TEST(PerfLaunchedAs, ASingleRankOfALauncherIsARank) {
  EXPECT_EQ(launched_with({{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}}).meeting,
            Meeting::mpi);
  const std::map<std::string, std::string> script = {{"WORLD_SIZE", "1"}, {"RANK", "0"}};
  EXPECT_EQ(launched_with(script).meeting, Meeting::none);  // containers often have these
  std::map<std::string, std::string> torchrun = script;
  torchrun["TORCHELASTIC_RUN_ID"] = "none";
  EXPECT_EQ(launched_with(torchrun).meeting, Meeting::tcp);
}

TEST(PerfLaunchedAs, AScriptThatForgetsTheRankIsToldSo) {
  EXPECT_EQ(launched_with({{"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}}).meeting, Meeting::tcp);
  EXPECT_EQ(launched_with({{"WORLD_SIZE", "2"}}).meeting, Meeting::none);
  const LaunchedAs step = launched_with(
      {{"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}});
  EXPECT_EQ(step.size, 4);
  EXPECT_EQ(step.rank, 3);
}

TEST(PerfLaunchedAs, OfSeveralLaunchersTheInnermostCounts) {
  std::map<std::string, std::string> all = {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  EXPECT_EQ(launched_with(all).size, 2);
  all["PMIX_RANK"] = "1";
  EXPECT_EQ(launched_with(all).meeting, Meeting::mpi);
  all["WORLD_SIZE"] = "8";
  all["RANK"] = "7";
  EXPECT_EQ(launched_with(all).meeting, Meeting::mpi);
  all["TORCHELASTIC_RUN_ID"] = "4711";
  EXPECT_EQ(launched_with(all).meeting, Meeting::tcp);
  EXPECT_EQ(launched_with(all).rank, 7);
}

TEST(PerfLaunchedAs, ABatchScriptAndAnInteractiveStepAreAlone) {
  EXPECT_EQ(launched_with({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).meeting, Meeting::none);
  EXPECT_EQ(launched_with({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_PROCID", "0"}}).meeting, Meeting::none);
}

TEST(PerfLaunchedAs, NonsenseIsNoLauncher) {
  EXPECT_EQ(launched_with({{"PMI_SIZE", "many"}, {"PMI_RANK", "0"}}).meeting, Meeting::none);
  EXPECT_EQ(launched_with({{"PMI_SIZE", "4"}, {"PMI_RANK", ""}}).meeting, Meeting::none);
  EXPECT_EQ(launched_with({{"RANK", "1"}}).meeting, Meeting::none);
}

}  // namespace
}  // namespace tutti::perf
