// SPDX-License-Identifier: Apache-2.0
#include "parsed_options.hpp"
#include "perf/output.hpp"
#include "perf/table_printer.hpp"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

/// A terminal of so many columns, which the standard error stream is as long as the object is there.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : reader_(posix_openpt(O_RDWR | O_NOCTTY)) {
    EXPECT_EQ(grantpt(reader_), 0);
    EXPECT_EQ(unlockpt(reader_), 0);
    const int writer = open(ptsname(reader_), O_RDWR | O_NOCTTY);
    winsize size{};
    size.ws_row = 10;
    size.ws_col = columns;
    EXPECT_EQ(ioctl(writer, TIOCSWINSZ, &size), 0);
    dup2(writer, STDERR_FILENO);
    close(writer);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(reader_);
  }
  /// What has been written to it since.
  [[nodiscard]] std::string shown() const {
    std::array<char, 256> text{};
    const ssize_t length = read(reader_, text.data(), text.size());
    return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "";
  }

 private:
  int before_ = dup(STDERR_FILENO);
  int reader_;
};

TEST(PerfProgress, KeepsToOneLineOfTheTerminal) {
  const Terminal terminal(20);
  const Progress progress(true);
  progress.show("broadcast, row 1 ...");
  EXPECT_EQ(terminal.shown(), "\r\033[Kbroadcast, row 1 ..");
  progress.show("barrier ...");
  EXPECT_EQ(terminal.shown(), "\r\033[Kbarrier ...");
  progress.clear();
  EXPECT_EQ(terminal.shown(), "\r\033[K");
}

TEST(PerfProgress, IsWholeOnATerminalThatDoesNotTellItsWidth) {
  const Terminal terminal(0);
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
