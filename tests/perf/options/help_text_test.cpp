// SPDX-License-Identifier: Apache-2.0
#include "perf/options/command_line.hpp"

#include <array>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfHelpText, IsBrokenBetweenWordsAndColumnsGoOnBelowTheirLast) {
  const std::string ten_words = "one two three four five six seven eight nine ten ";
  EXPECT_EQ(wrapped(ten_words + "\n" + ten_words + "\n\nend"),
            ten_words + "one two three four five six\nseven eight nine ten\n\nend");
  EXPECT_EQ(wrapped("head:\n  -a  " + ten_words + ten_words + "\nfoot"),
            "head:\n  -a  " + ten_words + "one two three four five\n      six seven eight nine ten\nfoot");
  EXPECT_EQ(wrapped(""), "");
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
