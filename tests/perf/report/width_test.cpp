// SPDX-License-Identifier: Apache-2.0
#include "perf/report/width.hpp"

#include "perf/options/command_line.hpp"
#include "perf/report/terminal.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// The variable COLUMNS as long as the object is there; nullptr: unset.
class ColumnsVariable {
 public:
  explicit ColumnsVariable(const char* value) {
    if (const char* const before = std::getenv("COLUMNS")) before_ = before;
    set(value);
  }
  ColumnsVariable(const ColumnsVariable&) = delete;
  ColumnsVariable& operator=(const ColumnsVariable&) = delete;
  ~ColumnsVariable() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* value) {
    static_cast<void>(value == nullptr ? unsetenv("COLUMNS") : setenv("COLUMNS", value, 1));
  }
  std::optional<std::string> before_;
};

/// A pipe that the standard output is as long as the object is there.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    dup2(ends[1], STDOUT_FILENO);
    for (const int end : ends) close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    dup2(before_, STDOUT_FILENO);
    close(before_);
  }

 private:
  int before_ = dup(STDOUT_FILENO);
};

struct Widths {
  std::size_t table = table_width(false);
  std::size_t of_ranks = table_width(true);
  std::size_t text = text_width();
};

Widths in_terminal(unsigned short columns, const char* variable) {
  std::fflush(stdout);
  const ColumnsVariable columns_variable(variable);
  const Terminal terminal(STDOUT_FILENO, columns);
  return {};
}

TEST(PerfWidth, OfATerminalIsItsOwnUnlessTheVariableSaysAnother) {
  EXPECT_EQ(in_terminal(97, nullptr).table, 97U);
  EXPECT_EQ(in_terminal(97, nullptr).text, 97U);
  EXPECT_EQ(in_terminal(97, "60").table, 60U);
  EXPECT_EQ(in_terminal(97, "60").text, 60U);
  EXPECT_EQ(in_terminal(200, nullptr).table, 200U);
  EXPECT_EQ(in_terminal(200, nullptr).text, 120U);
  for (const char* const nothing : {"", "0", "-3", "60x"})
    EXPECT_EQ(in_terminal(97, nothing).table, 97U) << nothing;
}

TEST(PerfWidth, OfATerminalThatALauncherPutsBeforeRanksThereIsNone) {
  EXPECT_EQ(in_terminal(97, nullptr).of_ranks, 97U);
  EXPECT_EQ(in_terminal(97, "60").of_ranks, 60U);
  EXPECT_EQ(in_terminal(0, "60").of_ranks, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(in_terminal(0, "60").table, 60U);
}

TEST(PerfWidth, TablesInPipesHaveNoLimitWhateverTheVariableSays) {
  for (const char* const variable : {static_cast<const char*>(nullptr), "60"}) {
    std::fflush(stdout);
    const ColumnsVariable columns_variable(variable);
    Widths widths;
    {
      const Pipe pipe;
      widths = {};
    }
    EXPECT_EQ(widths.table, std::numeric_limits<std::size_t>::max());
    EXPECT_EQ(widths.text, variable == nullptr ? 80U : 60U);
  }
}

TEST(PerfWidth, TextIsBrokenBetweenWordsAndColumnsGoOnBelowTheirLast) {
  EXPECT_EQ(wrapped("one two\nthree four\n\nfive", 13), "one two three\nfour\n\nfive");
  EXPECT_EQ(wrapped("head:\n  -a  does this\n  --longer-than-that  x\nfoot", 12),
            "head:\n  -a  does\n      this\n  --longer-than-that  x\nfoot");
  EXPECT_EQ(wrapped("", 12), "");
}

TEST(PerfWidth, TheHelpKeepsToIt) {
  for (const std::size_t width : {50U, 60U, 80U, 100U, 120U}) {
    const ColumnsVariable variable(std::to_string(width).c_str());
    const std::array arguments{"tutti-perf", "topo", "--help"};
    std::string help;
    EXPECT_FALSE(split_command_line(static_cast<int>(arguments.size()), arguments.data(), help));
    std::istringstream lines(help);
    std::size_t longest = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), width) << line;
      longest = std::max(longest, line.size());
    }
    EXPECT_GT(longest, width - 10);
  }
}

}  // namespace
}  // namespace tutti::perf
