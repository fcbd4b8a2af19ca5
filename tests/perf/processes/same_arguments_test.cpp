// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/same_arguments.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

std::string of_all(std::vector<const char*> words) {
  words.insert(words.begin(), "tutti-perf");
  return arguments_of_all(words);
}

TEST(PerfSameArguments, AreAllButTheFiles) {
  EXPECT_EQ(of_all({}), "");
  EXPECT_EQ(of_all({"all", "-b", "8", "--peer=mpi"}), " all -b 8 --peer=mpi");
  EXPECT_EQ(of_all({"all", "-J", "a.json", "-b", "8"}), " all -b 8");
  EXPECT_EQ(of_all({"all", "-Ja.json", "-J=a.json", "-b", "8"}), " all -b 8");
  for (const char* const option : {"--output_file", "--baseline"}) {
    EXPECT_EQ(of_all({"all", option, "a", "-b", "8"}), " all -b 8") << option;
    EXPECT_EQ(of_all({"all", (std::string(option) + "=a").c_str(), "-b", "8"}), " all -b 8") << option;
    EXPECT_EQ(of_all({"all", option}), " all") << option;
  }
  EXPECT_EQ(of_all({"all", "--baselines", "a"}), " all --baselines a");
}

}  // namespace
}  // namespace tutti::perf
