// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

/// Result of a program as a user sees it: exit status, standard output, standard error.
namespace tutti::perf {

inline std::string temporary(const std::string& name) {
  return testing::TempDir() + "tutti_perf_" + std::to_string(getpid()) + "_" + name;
}

inline std::string content_of(const std::string& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// A running program. The object removes its files.
class Program {
 public:
  /// Starts a program. The first of `words` is its path.
  explicit Program(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      redirect(out_file_, STDOUT_FILENO);
      redirect(error_file_, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    unlink(out_file_.c_str());
    unlink(error_file_.c_str());
  }

  void interrupt() const { signal(SIGINT); }
  void signal(int number) const { kill(pid_, number); }
  [[nodiscard]] std::string out() const { return content_of(out_file_); }
  [[nodiscard]] std::string error() const { return content_of(error_file_); }
  /// Waits until it has printed `text`, or has ended.
  void wait_for(const std::string& text) const {
    while (!has_ended() && out().find(text) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  /// Waits for the end and returns the exit status, or -1 if a signal ended it.
  int wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  /// Returns whether it has ended, and leaves its status to `wait`.
  [[nodiscard]] bool has_ended() const {
    siginfo_t ended{};
    return waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ended.si_pid != 0;
  }
  static void redirect(const std::string& file, int descriptor) {
    const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(opened, descriptor);
    close(opened);
  }

  /// Runs several programs at a time.
  static std::string file_of_its_own(const std::string& name) {
    static int count = 0;
    return temporary(name + std::to_string(++count));
  }

  std::string out_file_ = file_of_its_own("out");
  std::string error_file_ = file_of_its_own("error");
  pid_t pid_ = -1;
};

struct Outcome {
  int status;
  std::string out;
  std::string error;
};

inline Outcome outcome_of(std::vector<std::string> words) {
  const Program program(std::move(words));
  const int status = program.wait();
  return {status, program.out(), program.error()};
}

inline void expect_one_line_about(const std::string& error, const std::string& about) {
  EXPECT_EQ(error.rfind("tutti-perf: ", 0), 0U) << error;
  EXPECT_NE(error.find(about), std::string::npos) << error;
  EXPECT_EQ(std::count(error.begin(), error.end(), '\n'), 1) << error;
}

}  // namespace tutti::perf
