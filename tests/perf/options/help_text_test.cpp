// SPDX-License-Identifier: Apache-2.0
#include "perf/options/command_line.hpp"

#include <array>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfHelpText, IsBrokenBetweenWordsAndGoesOnBelowWhereItBegan) {
  const std::string ten_words = "one two three four five six seven eight nine ten";
  EXPECT_EQ(wrapped(ten_words + " \n" + ten_words, 0),
            ten_words + " one two three four five six\nseven eight nine ten");
  EXPECT_EQ(wrapped(ten_words + " " + ten_words, 6),
            ten_words + " one two three four five\n      six seven eight nine ten");
  EXPECT_EQ(wrapped("", 6), "");
}

TEST(PerfHelpText, KeepsToTheWidthOfATerminal) {
  const std::array arguments{"tutti-perf", "--help"};
  std::string help;
  EXPECT_FALSE(split_command_line(static_cast<int>(arguments.size()), arguments.data(), help));
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
}

}  // namespace
}  // namespace tutti::perf
