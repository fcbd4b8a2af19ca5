// SPDX-License-Identifier: Apache-2.0
#include "perf/options/parsed_options.hpp"
#include "perf/report/output.hpp"
#include "perf/report/table.hpp"
#include "perf/report/terminal.hpp"

#include <cstddef>
#include <initializer_list>
#include <string>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfProgress, KeepsToOneLineOfTheTerminal) {
  const Terminal terminal(STDERR_FILENO, 20);
  const Progress progress(true);
  progress.show("broadcast, row 1 ...");
  EXPECT_EQ(terminal.shown(), "\r\033[Kbroadcast, row 1 ..");
  progress.show("barrier ...");
  EXPECT_EQ(terminal.shown(), "\r\033[Kbarrier ...");
  progress.clear();
  EXPECT_EQ(terminal.shown(), "\r\033[K");
}

TEST(PerfProgress, IsWholeOnATerminalThatDoesNotTellItsWidth) {
  const Terminal terminal(STDERR_FILENO, 0);
  Progress(true).show("all_reduce_add float32 64M, row 3 of 24 ...");
  EXPECT_EQ(terminal.shown(), "\r\033[Kall_reduce_add float32 64M, row 3 of 24 ...");
}

TEST(PerfProgress, TellsWhatVariesAndHowFarTheRunIs) {
  const auto shown = [](std::initializer_list<const char*> words, const Position& position, int cycle) {
    const Options options = parsed(words);
    Case what;
    what.bytes = std::size_t{1} << 20U;
    what.root = 2;
    what.partner = 1;
    what.reduce_kind = ReduceKind::max;
    return progress_in_words(options, *options.operations.front(), what, position, cycle);
  };
  EXPECT_EQ(shown({"broadcast"}, {3, 24}, 1), "broadcast float32 1M, row 3 of 24 ...");
  EXPECT_EQ(shown({"broadcast", "-r", "all"}, {3, 24}, 1), "broadcast float32 1M root 2, row 3 of 24 ...");
  EXPECT_EQ(shown({"reduce", "-r", "all", "-o", "all", "-N", "5"}, {1, 2}, 4),
            "reduce_add float32 1M max root 2, row 1 of 2, cycle 4 of 5 ...");
  EXPECT_EQ(shown({"all_gather", "-r", "all", "-N", "0"}, {1, 2}, 7),
            "all_gather float32 1M, row 1 of 2, cycle 7 ...");
  EXPECT_EQ(shown({"gather", "--dim", "all"}, {1, 2}, 1), "gather float32 1M dim 0, row 1 of 2 ...");
  EXPECT_EQ(shown({"sendrecv"}, {1, 2}, 1), "sendrecv float32 1M 2 to 1, row 1 of 2 ...");
  EXPECT_EQ(shown({"barrier"}, {1, 1}, 1), "barrier, row 1 of 1 ...");
}

}  // namespace
}  // namespace tutti::perf
