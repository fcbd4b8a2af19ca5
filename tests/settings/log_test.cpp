// SPDX-License-Identifier: Apache-2.0
#include "settings/log.hpp"

#include "support/environment.hpp"
#include "support/memory/process_resources.hpp"
#include "support/timing.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/// Lines of the log, whatever standard error is.
namespace tutti::test {
namespace {

using namespace std::chrono_literals;

volatile std::sig_atomic_t signals_taken = 0;

/// For its lifetime, standard error is one end of something, of which the test has the other; SIGPIPE and
/// SIGXFSZ are counted.
class Log : public testing::Test {
 protected:
  Log() {
    signals_taken = 0;
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, [](int) { signals_taken = 1; });
  }
  ~Log() override {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close_reader();
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
  }

  /// Takes both ends.
  void write_to(int writer, int reader) {
    dup2(writer, STDERR_FILENO);
    close(writer);
    reader_ = reader;
  }
  void write_to_pipe() {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    write_to(ends[1], ends[0]);
  }
  void write_to_socket() {
    std::array<int, 2> ends{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
    write_to(ends[1], ends[0]);
  }
  void close_reader() {
    if (reader_ >= 0) close(reader_);
    reader_ = -1;
  }
  /// Nothing more goes in.
  static void fill() {
    const int flags = fcntl(STDERR_FILENO, F_GETFL);
    fcntl(STDERR_FILENO, F_SETFL, flags | O_NONBLOCK);
    const std::array<char, 512> bytes{};
    while (write(STDERR_FILENO, bytes.data(), bytes.size()) > 0) continue;
    while (write(STDERR_FILENO, bytes.data(), 1) > 0) continue;
    fcntl(STDERR_FILENO, F_SETFL, flags);
  }
  /// What has been written so far, but for what has filled it.
  [[nodiscard]] std::string written() const {
    std::string text;
    std::array<char, 4096> bytes{};
    fcntl(reader_, F_SETFL, O_NONBLOCK);
    for (ssize_t count = 0; (count = read(reader_, bytes.data(), bytes.size())) > 0;)
      text.append(bytes.data(), static_cast<std::size_t>(count));
    std::erase(text, '\0');
    return text;
  }
  static void expect_no_signal() {
    EXPECT_EQ(signals_taken, 0);
    sigset_t pending;
    sigpending(&pending);
    EXPECT_EQ(sigismember(&pending, SIGPIPE) + sigismember(&pending, SIGXFSZ), 0);
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    EXPECT_EQ(sigismember(&blocked, SIGPIPE) + sigismember(&blocked, SIGXFSZ), 0);
  }
  static void expect_to_hold_nobody_up() {
    EXPECT_LT(time_of([] { log_warning("one"); }), log_patience + at_once);
    // Nobody waits once for each line.
    EXPECT_LT(time_of([] {
                for (int line = 0; line < 100; ++line) log_warning("many");
              }),
              log_patience + at_once);
  }

 private:
  int before_ = dup(STDERR_FILENO);
  int reader_ = -1;
};

TEST_F(Log, IsWrittenAtOnceALineAtATime) {
  write_to_pipe();
  const std::size_t descriptors = open_descriptors();
  log_warning("a message");
  EXPECT_EQ(written(), "tutti: warning: a message\n");
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST_F(Log, HoldsNobodyUpWhereAPipeIsFullAndSaysLaterWhatIsLost) {
  write_to_pipe();
  fill();
  expect_to_hold_nobody_up();
  EXPECT_EQ(written(), "");
  log_warning("after");
  EXPECT_EQ(written(), "tutti: warning: 101 earlier messages could not be written\ntutti: warning: after\n");
  log_warning("last");
  EXPECT_EQ(written(), "tutti: warning: last\n");
}

TEST_F(Log, LeavesThePipeAsItIs) {
  write_to_pipe();
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  log_warning("a message");
  EXPECT_EQ(fcntl(STDERR_FILENO, F_GETFL), flags);
}

TEST_F(Log, HoldsNobodyUpWhereASocketIsFull) {
  write_to_socket();
  fill();
  expect_to_hold_nobody_up();
  EXPECT_EQ(written(), "");
  log_warning("after");
  EXPECT_EQ(written(), "tutti: warning: 101 earlier messages could not be written\ntutti: warning: after\n");
}

TEST_F(Log, RaisesNoSignalWhereNobodyReadsAnyMore) {
  for (const bool is_pipe : {true, false}) {
    SCOPED_TRACE(is_pipe ? "pipe" : "socket");
    is_pipe ? write_to_pipe() : write_to_socket();
    close_reader();
    expect_to_hold_nobody_up();
    expect_no_signal();
  }
  write_to_pipe();
  log_warning("after");
  EXPECT_EQ(written(), "tutti: warning: 202 earlier messages could not be written\ntutti: warning: after\n");
}

TEST_F(Log, RaisesNoSignalWhereAFileMayNotBecomeLonger) {
  std::string path = "/tmp/tutti-log-XXXXXX";
  const int file = mkstemp(path.data());
  ASSERT_GE(file, 0);
  write_to(dup(file), file);
  unlink(path.c_str());
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit limit{10, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  log_warning("a message");
  log_warning("another one");
  setrlimit(RLIMIT_FSIZE, &before);
  expect_no_signal();
  log_warning("after");
  lseek(file, 0, SEEK_SET);
  EXPECT_EQ(written(),
            "tutti: war\ntutti: warning: 2 earlier messages could not be written\ntutti: warning: after\n");
}

TEST_F(Log, GoesNowhereWhereStandardErrorIsClosed) {
  write_to_pipe();
  const int writer = dup(STDERR_FILENO);
  close(STDERR_FILENO);
  log_warning("a message");
  dup2(writer, STDERR_FILENO);
  close(writer);
  log_warning("after");
  EXPECT_EQ(written(), "tutti: warning: 1 earlier messages could not be written\ntutti: warning: after\n");
}

}  // namespace
}  // namespace tutti::test
