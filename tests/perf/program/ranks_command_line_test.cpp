// SPDX-License-Identifier: Apache-2.0
#include "perf/program/program.hpp"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// tutti-perf under mpirun, as a user sees it.
namespace tutti::perf {
namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// The command line that starts `command` on every rank.
std::vector<std::string> on_ranks(int ranks, const std::vector<std::string>& command) {
  std::vector<std::string> all{variable("TUTTI_RUN_RANKS"), std::to_string(ranks)};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

Outcome run(int ranks, const std::vector<std::string>& words, const char* program = "TUTTI_PERF_PROGRAM") {
  std::vector<std::string> command{variable(program)};
  command.insert(command.end(), words.begin(), words.end());
  return outcome_of(on_ranks(ranks, command));
}

/// The command of a rank: after `before`, a line of shell in which $rank is known, tutti-perf with `words`.
std::vector<std::string> after(const std::string& before, const std::string& words) {
  return {"/bin/bash", "-c",
          "rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; " + before + "; exec " + variable("TUTTI_PERF_PROGRAM") +
              " " + words};
}
Outcome run_with(int ranks, const std::string& before, const std::string& words) {
  return outcome_of(on_ranks(ranks, after(before, words)));
}

/// Such a line: the number of rank 1's process goes to `file`.
std::string writes_process_of_rank_1(const std::string& file) {
  return "if ((rank == 1)); then echo $$ >" + file + "; fi";
}

/// What tutti-perf said; launchers add words of their own about processes that exit with a status other than
/// 0.
std::string own_lines(const std::string& error) {
  std::istringstream lines(error);
  std::string own;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("tutti-perf: ", 0) == 0) own += line + "\n";
  }
  return own;
}

TEST(PerfRanksCommandLine, MistakesAreOneLineOfAllRanksAndStatusTwo) {
  const std::pair<std::vector<std::string>, const char*> mistakes[] = {
      {{"broadcast", "--no-such-flag"}, "--no-such-flag"},
      {{"broadcast", "-b", "12Q"}, "12Q"},
      {{"broadcast", "-r", "3"}, "-r: root 3 is not one of the 3 members"},
      {{"broadcast", "-g", "2", "--devices", "1"}, "-g: 2"},
      {{"broadcast", "-g", "17"}, "-g: '17' is not valid: expected a whole number, 1 to 16"},
      {{"broadcast", "--persistent", "--results", "new"}, "--results new and --persistent"},
      {{"explain", "barrier", "64M"}, "barrier"},
      {{"explain", "sendrecv", "64M"}, "sendrecv"},
      {{"broadcast", "--peer", "nccl"}, "--peer nccl:"},
      {{"broadcast", "--peer", "mpi", "-g", "2"}, "--peer mpi:"},
      {{"broadcast", "-J", "/no/such/directory/file"}, "/no/such/directory/file"},
  };
  for (const auto& [words, about] : mistakes) {
    const Outcome outcome = run(3, words);
    EXPECT_EQ(outcome.status, 2) << about << outcome.error;
    EXPECT_EQ(outcome.out, "");
    expect_one_line_about(own_lines(outcome.error), about);
  }
}

TEST(PerfRanksCommandLine, TopologyIsShownOfAllRanks) {
  const Outcome outcome = run(3, {"topo", "-g", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const char* expected :
       {"ranks: 3 on 1 host(s)", "member 0: rank 0 on ", "member 5: rank 2 on ",
        "seen by ranks 0, 1, 2:", "6 members in 3 ranks", "nobody sends or receives more than 4096 bytes\n"})
    EXPECT_NE(outcome.out.find(expected), std::string::npos) << expected << " is not in:\n" << outcome.out;
  const Outcome different = run_with(2, "export TUTTI_VIRTUAL_DEVICES=$((rank + 1))", "topo");
  EXPECT_EQ(different.status, 0) << different.error;
  for (const char* expected : {"seen by rank 0:", "seen by rank 1:"})
    EXPECT_NE(different.out.find(expected), std::string::npos) << different.out;
}

TEST(PerfRanksCommandLine, RanksAreToldApartAndSoAreTheRowsOfAPeer) {
  const std::string process = temporary("process");
  const Outcome outcome = run_with(2, "echo $$ >" + process + "$rank",
                                   "all_reduce -b 1K -e 1K -n 1 --repetitions 1 --devices 1 --peer mpi");
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const std::string rank : {"0", "1"}) {
    std::string number = content_of(process + rank);
    number.erase(number.find_last_not_of('\n') + 1);
    std::remove((process + rank).c_str());
    EXPECT_NE(outcome.out.find(", process " + number + ", its own virtual device 0\n"), std::string::npos)
        << outcome.out;
  }
  std::istringstream lines(outcome.out);
  std::vector<std::string> whose;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    std::istringstream stream(line);
    const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
    ASSERT_EQ(words.size(), 17U) << line;
    whose.push_back(words[15]);
  }
  EXPECT_EQ(whose, (std::vector<std::string>{"tutti", "mpi"})) << outcome.out;
}

TEST(PerfRanksCommandLine, OnlyMemoryThatIsNotRegisteredGoesThroughStandIns) {
  for (const std::string memory : {"cuda", "registered", "expandable"}) {
    const Outcome outcome = run(2, {"all_reduce", "broadcast", "sendrecv", "-b", "8M", "-e", "8M", "--memory",
                                    memory, "-n", "1", "--repetitions", "1", "-c", "1", "--devices", "2"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(own_lines(outcome.error), "");
    EXPECT_EQ(outcome.out.find("through stand-ins") != std::string::npos, memory == "cuda")
        << memory << outcome.out;
  }
}

TEST(PerfRanksCommandLine, HelpIsSaidOnce) {
  for (const char* word : {"-h", "--version"}) {
    const Outcome outcome = run(3, {word});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, run(1, {word}).out);
  }
}

TEST(PerfRanksCommandLine, APlanIsShownOfAllRanks) {
  const Outcome outcome = run(3, {"explain", "broadcast", "1M", "-r", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("transport: p2p\n"), std::string::npos) << outcome.out;
  for (const char* step : {"step: member 0 ", "step: member 1 ", "step: member 2 "})
    EXPECT_NE(outcome.out.find(step), std::string::npos) << step << outcome.out;
  EXPECT_EQ(outcome.out.find("transport: "), outcome.out.rfind("transport: ")) << outcome.out;
}

TEST(PerfRanksCommandLine, APlanIsShownOfOneGroup) {
  const Outcome outcome = run(4, {"explain", "all_reduce", "1M", "--groups", "2"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  for (const char* step : {"step: member 0 takes ", "step: member 1 takes "}) {
    EXPECT_NE(outcome.out.find(step), std::string::npos) << step << outcome.out;
    EXPECT_EQ(outcome.out.find(step), outcome.out.rfind(step)) << step << outcome.out;
  }
  EXPECT_NE(outcome.out.find("groups: 2 of 2 ranks, this is the first one's\n"), std::string::npos)
      << outcome.out;
}

TEST(PerfRanksCommandLine, EveryRootTypeAndDimensionIsRightWithSeveralDevicesPerRank) {
  const std::string json = temporary("ranks.json");
  const Outcome outcome = run(2, {"all", "-b", "0", "-e", "30000", "-i", "15000", "-g", "2", "-r", "all",
                                  "--dim", "all", "-n", "1", "--repetitions", "1", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["schema"], "tutti-perf/2");
  EXPECT_EQ(document["mode"], "ranks");
  EXPECT_EQ(document["ranks"], 2);
  EXPECT_EQ(document["devices_per_rank"], 2);
  EXPECT_EQ(document["hosts"].size(), 1U);
  EXPECT_EQ(document["members"].size(), 4U);
  EXPECT_GT(document["start_up_ms"]["devices"], 0.0);
  EXPECT_GT(document["start_up_ms"]["communicator"], 0.0);
  EXPECT_GT(document["start_up_ms"]["first_collective"], document["start_up_ms"]["devices"]);
  EXPECT_GT(document["start_up_ms"]["first_collective"], document["start_up_ms"]["communicator"]);
  EXPECT_TRUE(document["not_measured"].empty());
  // Three sizes of: four operations with four roots, two of those with two dimensions as well, and twelve
  // without roots; and a barrier.
  EXPECT_EQ(document["rows"].size(), 3U * (4U * 4U + 2U * 4U * 2U + 12U) + 1U);
  for (const auto& row : document["rows"]) {
    for (const char* placement : {"out_of_place", "in_place"}) {
      if (row[placement].is_null()) continue;
      if (row["operation"] == "barrier") {
        EXPECT_TRUE(row[placement]["wrong"].is_null()) << row;
      } else {
        EXPECT_EQ(row[placement]["wrong"], 0) << row;
      }
    }
  }
}

TEST(PerfRanksCommandLine, BoundReplayedAndReturnedCallsAreRightWhereverTheRootIs) {
  const std::vector<std::string> forms[] = {
      {"--persistent", "-n", "2"}, {"-G", "1"}, {"--results", "new", "-n", "1"}};
  for (const std::vector<std::string>& form : forms) {
    std::vector<std::string> words{"all", "-b", "0",  "-e",  "15000",         "-i", "15000",
                                   "-g",  "2",  "-r", "all", "--repetitions", "1"};
    words.insert(words.end(), form.begin(), form.end());
    const Outcome outcome = run(2, words);
    EXPECT_EQ(outcome.status, 0) << form[0] << outcome.out << outcome.error;
    EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << form[0] << outcome.out;
    EXPECT_EQ(outcome.out.find("not measured"), std::string::npos) << form[0] << outcome.out;
  }
}

TEST(PerfRanksCommandLine, EveryElementTypeIsRight) {
  const Outcome outcome = run(3, {"reduce_add", "all_reduce_add", "broadcast", "-d", "all", "-b", "10000",
                                  "-e", "10000", "-n", "1", "--repetitions", "1"});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
}

TEST(PerfRanksCommandLine, EveryReductionOfEveryElementTypeIsRight) {
  const std::string json = temporary("reductions.json");
  // One collective is enough: which rank has which part does not depend on the operation and the type.
  const Outcome outcome = run(3, {"reduce_scatter", "-d", "all", "-o", "all", "-b", "10000", "-e", "10000",
                                  "-n", "1", "--repetitions", "1", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.out << outcome.error;
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  std::map<std::string, int> rows;
  const auto document = nlohmann::json::parse(content_of(json));
  for (const auto& row : document["rows"]) {
    ++rows[row["redop"]];
    EXPECT_EQ(row["out_of_place"]["wrong"], 0) << row;
    EXPECT_EQ(row["in_place"]["wrong"], 0) << row;
  }
  // 17 types, of which one is bool, two are complex, and nine have bits.
  const std::map<std::string, int> expected{{"sum", 17}, {"avg", 16}, {"premul_sum", 16},
                                            {"min", 15}, {"max", 15}, {"prod", 17},
                                            {"band", 9}, {"bor", 9},  {"bxor", 9}};
  EXPECT_EQ(rows, expected);
}

TEST(PerfRanksCommandLine, MpiIsMeasuredAndCheckedBeside) {
  const std::string json = temporary("mpi.json");
  const Outcome outcome =
      run(3, {"all", "-b", "10000", "-e", "10000", "-n", "2", "-r", "2", "--peer", "mpi", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  const auto document = nlohmann::json::parse(content_of(json));
  // MPI counts what goes either way once, in place.
  ASSERT_EQ(document["not_measured"].size(), 1U) << document["not_measured"];
  const auto& skipped = document["not_measured"][0];
  EXPECT_EQ(skipped["cause"], "refused");
  EXPECT_NE(skipped.dump().find("all_to_all_unequal"), std::string::npos) << skipped;
  EXPECT_NE(skipped.dump().find("only if each member sends and receives equal parts"), std::string::npos)
      << skipped;
  ASSERT_EQ(document["rows"].size(), 2U * 19U);
  for (const auto& row : document["rows"]) {
    if (row["by"] == "tutti") continue;
    EXPECT_EQ(row["by"], "mpi");
    EXPECT_GT(row["time_over_tutti"], 0.0) << row;
  }
  EXPECT_EQ(document["summary"]["wrong"], 0);
}

TEST(PerfRanksCommandLine, WhatMpiCannotSumIsLeftOutWithTheReason) {
  const Outcome outcome =
      run(2, {"reduce_add", "-b", "1K", "-e", "1K", "-n", "1", "-d", "half", "--peer", "mpi"});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("MPI has no sum of float16"), std::string::npos) << outcome.out;
}

TEST(PerfRanksCommandLine, WrongElementsOfAllRanksAreCountedAndAreStatusOne) {
  for (const std::string operation : {"broadcast", "gather", "all_gather", "sendrecv"}) {
    std::vector<std::string> words{operation, "-b", "64K", "-e", "64K", "-n", "2"};
    if (operation == "broadcast" || operation == "gather") words.insert(words.end(), {"-r", "1"});
    const Outcome outcome = run(3, words, "TUTTI_PERF_DAMAGING");
    EXPECT_EQ(outcome.status, 1) << outcome.out << outcome.error;
    // One of each output in both sets of buffers: the root's, or every rank's in both placements, of which
    // sendrecv has one.
    const std::string wrong = operation == "gather" ? "2" : operation == "sendrecv" ? "6" : "12";
    std::string foot = "# wrong elements: ";
    foot.append(wrong).append(" FAILED: tutti ").append(wrong).append("\n");
    EXPECT_NE(outcome.out.find(foot), std::string::npos) << outcome.out;
    expect_one_line_about(own_lines(outcome.error), "wrong elements: tutti " + wrong);
  }
}

TEST(PerfRanksCommandLine, WhatOneRankHasNoMemoryForIsLeftOutByAllAndTheRunGoesOn) {
  const std::string json = temporary("memory.json");
  const Outcome outcome = run_with(3, "if ((rank == 1)); then export TUTTI_VIRTUAL_MEMORY=8M; fi",
                                   "broadcast all_gather -b 1M -e 64M -f 64 -n 1 -J " + json);
  EXPECT_EQ(outcome.status, 5) << outcome.out;
  expect_one_line_about(own_lines(outcome.error), "rank 1: out of memory");
  EXPECT_NE(outcome.out.find("# wrong elements: 0 OK"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("# not measured: broadcast 64M float32 root 0: rank 1: out of memory"),
            std::string::npos)
      << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  ASSERT_EQ(document["rows"].size(), 2U);
  EXPECT_EQ(document["rows"][1]["operation"], "all_gather");
  EXPECT_EQ(document["not_measured"].size(), 2U);
  for (const auto& skipped : document["not_measured"])
    EXPECT_EQ(skipped["cause"], "out_of_memory") << skipped;
  EXPECT_TRUE(document["summary"]["failure"].is_null());
}

TEST(PerfRanksCommandLine, ARankThatIsToldWrongThingsEndsAll) {
  const Outcome flags =
      run_with(3, "flag=; if ((rank == 2)); then flag=--no-such-flag; fi", "broadcast -b 8 -e 8 $flag");
  EXPECT_EQ(flags.status, 2);
  expect_one_line_about(own_lines(flags.error), "rank 2: '--no-such-flag' is not an option");
}

TEST(PerfRanksCommandLine, RanksMayWriteFilesOfTheirOwn) {
  for (const std::string option : {"-J ", "-J", "--output_file=", "--output_file "}) {
    const std::string file = temporary("of_rank_");
    const Outcome outcome =
        run_with(2, "file=" + file + "$rank", "broadcast -b 8 -e 8 -n 1 " + option + "$file");
    EXPECT_EQ(outcome.status, 0) << option << outcome.error;
    EXPECT_EQ(unlink((file + "0").c_str()), 0);
    EXPECT_NE(unlink((file + "1").c_str()), 0) << "rank 0 alone writes";
  }
}

TEST(PerfRanksCommandLine, TheSlowestRankIsToldWhateverBecomesOfTheTimes) {
  const std::string json = temporary("average.json");
  const Outcome outcome =
      run(3, {"all_reduce", "-b", "1K", "-e", "1K", "-n", "5", "-a", "1", "-S", "1", "-J", json});
  EXPECT_EQ(outcome.status, 0) << outcome.error;
  EXPECT_NE(outcome.out.find("back to back on average over ranks"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("# slowest rank: "), std::string::npos) << outcome.out;
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_EQ(document["settings"]["over_ranks"], "average");
  const auto& ranks = document["rows"][0]["out_of_place"]["ranks"];
  const auto times = ranks["time_us"].get<std::vector<double>>();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_EQ(times.at(ranks["slowest"].get<std::size_t>()), std::ranges::max(times));
  EXPECT_EQ(ranks["over_fastest"], std::ranges::max(times) / std::ranges::min(times));
}

TEST(PerfRanksCommandLine, ASlowerRunEndsWithItsOwnStatus) {
  const std::string json = temporary("slower.json");
  ASSERT_EQ(run(2, {"barrier", "-n", "5", "-J", json}).status, 0);
  auto document = nlohmann::json::parse(content_of(json));
  document["rows"][0]["out_of_place"]["back_to_back_us"]["median"] = 1e-9;
  std::ofstream(json) << document;
  const Outcome outcome = run(2, {"barrier", "-n", "5", "--baseline", json});
  EXPECT_EQ(outcome.status, 3) << outcome.out << outcome.error;
  expect_one_line_about(own_lines(outcome.error), "1 of 1 time(s) slower than the baseline by more than 3 %");
}

TEST(PerfRanksCommandLine, AnInterruptOfOneRankEndsAll) {
  const std::string one = temporary("one");
  const Program program(
      on_ranks(3, after(writes_process_of_rank_1(one), "all -b 1M -e 4M -d all -r all --peer mpi")));
  program.wait_for(" 1048576 ");
  kill(std::stoi(content_of(one)), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.error();
  expect_one_line_about(own_lines(program.error()), "interrupted");
  EXPECT_NE(program.out().find("# interrupted"), std::string::npos) << program.out();
}

TEST(PerfRanksCommandLine, WhatWasMeasuredBeforeARankWasLostIsKept) {
  const std::string victim = temporary("victim");
  const std::string json = temporary("killed.json");
  setenv("OMPI_MCA_odls_base_sigkill_timeout", "2", 1);  // time to speak, on a busy machine too
  const Program program(
      on_ranks(3, after(writes_process_of_rank_1(victim), "all -b 1K -e 64M -d all -r all -J " + json)));
  unsetenv("OMPI_MCA_odls_base_sigkill_timeout");
  program.wait_for(" 4096 ");
  kill(std::stoi(content_of(victim)), SIGKILL);
  const int status = program.wait();
  EXPECT_NE(status, 0);
  EXPECT_NE(status, 99) << program.error();  // something was left behind
  const std::string said = own_lines(program.error());
  EXPECT_TRUE(std::regex_search(said, std::regex("tutti-perf: rank 0: .*rank 1 .*is gone"))) << said;
  EXPECT_NE(program.out().find("# ended by a failure"), std::string::npos) << program.out();
  const auto document = nlohmann::json::parse(content_of(json));
  EXPECT_GE(document["rows"].size(), 2U);
  EXPECT_NE(document["summary"]["failure"].get<std::string>().find("rank 1"), std::string::npos);
}

TEST(PerfRanksCommandLine, ALauncherOfAnotherMpiIsNamed) {
  for (const char* rank : {"0", "1"}) {
    const Outcome outcome =
        run_with(1, std::string("export OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=") + rank, "broadcast");
    EXPECT_EQ(outcome.status, 2) << outcome.error;
    if (rank[0] == '0') {
      expect_one_line_about(own_lines(outcome.error), "started 2 processes");
    } else {
      EXPECT_EQ(own_lines(outcome.error), "");
    }
  }
}

}  // namespace
}  // namespace tutti::perf
