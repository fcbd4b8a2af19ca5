// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "perf/processes/failure.hpp"
#include "perf/program/program.hpp"

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// tutti-perf as torchrun, a script or Slurm starts its ranks: by their variables, without MPI.
namespace tutti::perf {
namespace {

using Variables = std::map<std::string, std::string>;
using Words = std::vector<std::string>;

Variables of_torchrun(int rank, int size, int port) {
  return {{"RANK", std::to_string(rank)},        {"WORLD_SIZE", std::to_string(size)},
          {"LOCAL_RANK", std::to_string(rank)},  {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}, {"TORCHELASTIC_RUN_ID", "none"},
          {"TUTTI_SECRET", "0123456789abcdef"}};
}

Variables of_slurm(int rank, int size, const std::string& job) {
  return {{"SLURM_PROCID", std::to_string(rank)},
          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
          {"SLURM_LOCALID", std::to_string(rank)},
          {"SLURM_STEP_NUM_NODES", "1"},
          {"SLURM_JOB_ID", job},
          {"SLURM_STEP_ID", "0"}};
}

Variables with(Variables variables, const Variables& more) {
  for (const auto& [name, value] : more) variables[name] = value;
  return variables;
}

std::unique_ptr<Program> start(const Variables& variables, const Words& words) {
  Words command{"/usr/bin/env"};
  for (const auto& [name, value] : variables) command.push_back(fmt::format("{}={}", name, value));
  command.emplace_back(std::getenv("TUTTI_PERF_PROGRAM"));
  command.insert(command.end(), words.begin(), words.end());
  return std::make_unique<Program>(command);
}

/// Ranks that run at the same time, in order.
class Ranks {
 public:
  Ranks(const std::vector<Variables>& variables, const Words& words) {
    for (const Variables& of_rank : variables) ranks_.push_back(start(of_rank, words));
  }
  Ranks(int size, const Words& words, const Variables& more = {}) {
    const int port = test::Listener().port();
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(start(with(of_torchrun(rank, size, port), more), words));
  }
  [[nodiscard]] const Program& operator[](std::size_t rank) const { return *ranks_[rank]; }
  [[nodiscard]] std::vector<int> wait() const {
    std::vector<int> statuses;
    for (const auto& rank : ranks_) statuses.push_back(rank->wait());
    return statuses;
  }
  [[nodiscard]] const std::vector<std::unique_ptr<Program>>& all() const { return ranks_; }

 private:
  std::vector<std::unique_ptr<Program>> ranks_;
};

void expect_mention(const std::string& text, const std::string& fragment) {
  EXPECT_NE(text.find(fragment), std::string::npos) << fragment << " is not in:\n" << text;
}

TEST(PerfLaunchers, RanksOfTorchrunMeasureAndCheckEverything) {
  for (const int size : {2, 4}) {
    const std::string json = temporary("torchrun.json");
    const Ranks ranks(
        size, {"all", "-b", "8", "-e", "64K", "-f", "128", "-n", "2", "--repetitions", "1", "-J", json});
    EXPECT_EQ(ranks.wait(), std::vector<int>(static_cast<std::size_t>(size), all_right)) << ranks[0].error();
    expect_mention(ranks[0].out(), "# wrong elements: 0 OK");
    EXPECT_EQ(ranks[1].out(), "");
    const auto document = nlohmann::json::parse(content_of(json));
    EXPECT_EQ(document["mode"], "ranks");
    EXPECT_EQ(document["ranks"], size);
    EXPECT_GT(document["start_up_ms"]["communicator"], 0.0);
    unlink(json.c_str());
  }
}

TEST(PerfLaunchers, StepsOfSlurmThatRunAtTheSameTimeDoNotMix) {
  const Words words{"all_reduce_add", "-b", "1K", "-e", "1K", "-n", "2"};
  const std::string job = std::to_string(getpid());
  const std::string other = std::to_string(getpid() + 1);
  const Ranks three({of_slurm(0, 3, job), of_slurm(1, 3, job), of_slurm(2, 3, job)}, words);
  const Ranks two({of_slurm(0, 2, other), of_slurm(1, 2, other)}, words);
  EXPECT_EQ(three.wait(), std::vector<int>(3, all_right)) << three[0].error();
  EXPECT_EQ(two.wait(), std::vector<int>(2, all_right)) << two[0].error();
  expect_mention(three[0].out(), "# wrong elements: 0 OK");
  expect_mention(two[0].out(), "# wrong elements: 0 OK");
}

TEST(PerfLaunchers, ShowAndExplainWithoutMpi) {
  const Ranks shown(2, {"topo"});
  EXPECT_EQ(shown.wait(), std::vector<int>(2, all_right)) << shown[0].error();
  expect_mention(shown[0].out(), "ranks: 2 on 1 host(s)");
  const Ranks refused(2, {"broadcast", "--peer", "mpi"});
  EXPECT_EQ(refused.wait(), std::vector<int>(2, bad_usage));
  expect_mention(refused[0].error(), "start the ranks with mpirun");
  EXPECT_EQ(refused[1].error(), "");
}

TEST(PerfLaunchers, AMistakeOfOneRankIsSaidOnce) {
  const Ranks ranks(3, {"broadcast", "-r", "3"});
  EXPECT_EQ(ranks.wait(), std::vector<int>(3, bad_usage));
  expect_mention(ranks[0].error(), "-r: root 3 is not one of the 3 members");
  EXPECT_EQ(ranks[2].error(), "");
}

TEST(PerfLaunchers, AnotherSecretIsSaidByBoth) {
  const int port = test::Listener().port();
  const Variables patient = {{"TUTTI_JOIN_TIMEOUT", "5"}};  // time for the other one to start
  const Ranks ranks({with(of_torchrun(0, 2, port), patient),
                     with(of_torchrun(1, 2, port), {{"TUTTI_SECRET", "fedcba9876543210"}})},
                    {"broadcast"});
  EXPECT_EQ(ranks.wait(), (std::vector<int>{run_failed, bad_usage}));
  expect_mention(ranks[0].error(), "tutti-perf: rank 0: after 5 s, rank 1 has not come to 127.0.0.1:");
  expect_mention(ranks[0].error(), "had another secret (TUTTI_SECRET)");
  expect_mention(ranks[1].error(), "another secret than rank 1 (TUTTI_SECRET)");
}

TEST(PerfLaunchers, RanksThatDoNotComeAreNamed) {
  const int port = test::Listener().port();
  const Variables patient = {{"TUTTI_JOIN_TIMEOUT", "5"}};  // time for the other one to start
  const Variables hasty = {{"TUTTI_JOIN_TIMEOUT", "1"}};
  const Ranks first({with(of_torchrun(0, 3, port), patient), with(of_torchrun(1, 3, port), patient)},
                    {"topo"});
  EXPECT_EQ(first.wait(), std::vector<int>(2, run_failed));
  for (const auto& rank : first.all()) expect_mention(rank->error(), "rank 2 has not come");
  const Ranks last({with(of_torchrun(2, 3, port), hasty)}, {"topo"});
  EXPECT_EQ(last.wait(), std::vector<int>{run_failed});
  expect_mention(last[0].error(), "rank 0 does not listen at 127.0.0.1:" + std::to_string(port));
}

TEST(PerfLaunchers, WhatTheEnvironmentHasWrongIsNamed) {
  const test::Listener other;
  const Variables good = of_torchrun(0, 2, other.port());
  const struct {
    Variables more;
    int status;
    std::string about;
  } mistakes[] = {
      {{}, run_failed, "MASTER_PORT is " + std::to_string(other.port()) + ": another program"},
      {{{"MASTER_ADDR", ""}}, bad_usage, "MASTER_ADDR is not set"},
      {{{"MASTER_ADDR", "192.0.2.1"}}, bad_usage, "MASTER_ADDR is '192.0.2.1'"},
      {{{"MASTER_ADDR", "192.0.2.1"}, {"TUTTI_SECRET", ""}}, bad_usage, "TUTTI_SECRET is not set"},
      {{{"RANK", "2"}}, bad_usage, "RANK is '2', expected a whole number, 0 to 1"},
      {{{"WORLD_SIZE", "two"}}, bad_usage, "WORLD_SIZE is 'two'"},
      {{{"TUTTI_SECRET", "short"}}, bad_usage, "TUTTI_SECRET has 5 byte(s)"},
  };
  for (const auto& mistake : mistakes) {
    const auto rank = start(with(good, mistake.more), {"broadcast"});
    EXPECT_EQ(rank->wait(), mistake.status) << mistake.about;
    expect_one_line_about(rank->error(), mistake.about);
  }
}

TEST(PerfLaunchers, AnInterruptKeepsWhatWasMeasured) {
  const Ranks ranks(2, {"all_reduce_add", "-b", "8", "-e", "64M", "-f", "2"});
  ranks[0].wait_for("float32");
  for (const auto& rank : ranks.all()) rank->interrupt();
  EXPECT_EQ(ranks.wait(), std::vector<int>(2, was_interrupted)) << ranks[0].error();
  expect_mention(ranks[0].error(), "interrupted after ");
}

TEST(PerfLaunchers, GroupsOfRanksMeasureAtTheSameTime) {
  const std::string json = temporary("groups.json");
  const Ranks ranks(4, {"all_reduce_add", "gather", "-b", "4K", "-e", "4K", "-n", "2", "--groups", "2", "-r",
                        "all", "-J", json});
  EXPECT_EQ(ranks.wait(), std::vector<int>(4, all_right)) << ranks[0].error();
  expect_mention(ranks[0].out(), "# 2 groups of 2 ranks measure at the same time");
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["settings"]["groups"], 2);
  EXPECT_EQ(document["rows"].size(), 3U);  // of two roots
  for (const auto& row : document["rows"]) {
    EXPECT_EQ(row["devices"], 2);
    EXPECT_EQ(row["out_of_place"]["wrong"], 0);
  }
  unlink(json.c_str());
  const Ranks uneven(3, {"all_reduce_add", "--groups", "2"});
  EXPECT_EQ(uneven.wait(), std::vector<int>(3, bad_usage));
  expect_mention(uneven[0].error(),
                 "--groups: 2 groups of 3 ranks, expected a number that divides the ranks evenly");
}

TEST(PerfLaunchers, ARowInWhichARankStopsEndsInTime) {
  const Ranks ranks(
      2, {"all_reduce_add", "-b", "1K", "-e", "1K", "-n", "1", "--repetitions", "1", "-N", "0", "-T", "5"});
  ranks[0].wait_for("# cycle 2");
  ranks[1].signal(SIGSTOP);
  EXPECT_EQ(ranks[0].wait(), timed_out) << ranks[0].error();
  expect_mention(ranks[0].error(), "-T: all_reduce_add 1K float32 has taken more than 5 s");
  ranks[1].signal(SIGKILL);
  EXPECT_EQ(ranks[1].wait(), -1);
}

TEST(PerfLaunchers, ARankThatIsKilledIsMissed) {
  const Ranks ranks(3, {"all_reduce_add", "-b", "8", "-e", "64M", "-f", "2"});
  ranks[0].wait_for("float32");
  ranks[2].signal(SIGKILL);
  const std::vector<int> statuses = ranks.wait();
  EXPECT_EQ(statuses, (std::vector<int>{run_failed, run_failed, -1}));
  expect_mention(ranks[0].error(), "rank 2");
  expect_mention(ranks[0].out(), "float32");
}

}  // namespace
}  // namespace tutti::perf
