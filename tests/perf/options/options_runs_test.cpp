// SPDX-License-Identifier: Apache-2.0
#include "perf/options/parsed_options.hpp"
#include "perf/options/usage_errors.hpp"

#include <chrono>
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfOptionsRuns, AreOneCycleOfSingleCallsOnAlignedMemoryUnlessSaidOtherwise) {
  const Options options = parsed({"all_reduce_add"});
  EXPECT_EQ(options.cycles, 1);
  EXPECT_FALSE(options.row_timeout);
  EXPECT_EQ(options.calls_of_a_launch, 1);
  EXPECT_EQ(options.first_element, 0);
  EXPECT_EQ(options.groups, 1);
  EXPECT_EQ(options.memory, MemoryChoice::tutti);
}

TEST(PerfOptionsRuns, ChooseTheMemoryOfOperands) {
  for (const MemoryChoice choice :
       {MemoryChoice::tutti, MemoryChoice::cuda, MemoryChoice::registered, MemoryChoice::expandable}) {
    const std::string name(name_in(memory_names, choice));
    EXPECT_EQ(parsed({"broadcast", "--memory", name.c_str()}).memory, choice);
  }
}

TEST(PerfOptionsRuns, HaveTheNamesOfNcclTests) {
  const std::initializer_list<const char*> forms[] = {
      {"broadcast", "-N", "0", "-T", "5", "-m", "4", "-u", "3"},
      {"broadcast", "--run_cycles=0", "--timeout=5", "--agg_iters=4", "--unalign=3"}};
  for (const std::initializer_list<const char*> words : forms) {
    const Options options = parsed(words);
    EXPECT_EQ(options.cycles, 0);
    EXPECT_EQ(options.row_timeout, std::chrono::seconds(5));
    EXPECT_EQ(options.calls_of_a_launch, 4);
    EXPECT_EQ(options.first_element, 3);
  }
  EXPECT_EQ(parsed({"broadcast", "--groups", "2"}, Mode::ranks).groups, 2);
}

TEST(PerfOptionsRuns, WhatDoesNotGoTogetherIsRefused) {
  const struct {
    std::initializer_list<const char*> words;
    Mode mode;
    const char* about;
  } mistakes[] = {
      {{"broadcast", "-N", "-1"}, Mode::single_process, "-N: '-1'"},
      {{"broadcast", "-T", "soon"}, Mode::single_process, "-T: 'soon'"},
      {{"broadcast", "-m", "0"}, Mode::single_process, "-m: '0'"},
      {{"broadcast", "-m", "2", "--results", "new"},
       Mode::single_process,
       "-m 2 and --results new exclude each other"},
      {{"broadcast", "--memory", "managed"}, Mode::single_process, "--memory: 'managed'"},
      {{"broadcast", "--memory", "cuda", "--results", "new"},
       Mode::single_process,
       "--memory cuda and --results new exclude each other"},
      {{"broadcast", "--groups", "2"},
       Mode::single_process,
       "--groups 2: there is one process, expected ranks"},
      {{"broadcast", "--groups", "0"}, Mode::ranks, "--groups: '0'"},
      {{"broadcast", "--groups", "2", "--peer", "mpi"}, Mode::ranks, "--groups 2 and --peer"},
  };
  for (const auto& mistake : mistakes) {
    const std::string message =
        usage_error_of([&] { static_cast<void>(parsed(mistake.words, mistake.mode)); });
    EXPECT_NE(message.find(mistake.about), std::string::npos) << mistake.about << " is not in: " << message;
  }
}

}  // namespace
}  // namespace tutti::perf
