// SPDX-License-Identifier: Apache-2.0
#include "backend/host/child_program.hpp"

#include "os/descriptor.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace tutti::backend::host {
namespace {

constexpr std::size_t longest_output = std::size_t{1} << 20;

/// Pointers to words, as `exec` takes them.
std::vector<char*> pointers_to(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> scrubbed_environment() {
  std::vector<std::string> variables{"LC_ALL=C"};
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with("TUTTI_") && !text.starts_with("LC_ALL=")) variables.emplace_back(text);
  }
  return variables;
}

/// The descriptors and signals of a program that is started.
class Start {
 public:
  explicit Start(int output) {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files_, output, STDERR_FILENO);
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes_, &none);
    sigset_t usual;
    sigemptyset(&usual);
    for (const int signal : {SIGCHLD, SIGPIPE, SIGXFSZ}) sigaddset(&usual, signal);
    posix_spawnattr_setsigdefault(&attributes_, &usual);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  ~Start() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  /// Gives 0, or why it cannot be started.
  int run(const std::vector<std::string>& words, pid_t& child) {
    const std::vector<std::string> environment = scrubbed_environment();
    return posix_spawnp(&child, words.front().c_str(), &files_, &attributes_, pointers_to(words).data(),
                        pointers_to(environment).data());
  }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

std::string beginning_of(const Descriptor& file) {
  std::string text(longest_output, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t count =
        pread(file.number(), text.data() + length, text.size() - length, static_cast<off_t>(length));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    length += static_cast<std::size_t>(count);
  }
  text.resize(length);
  return text;
}

/// Waits until a child has ended, for `limit` at most. Returns false if it still runs then.
bool ends_within(std::chrono::milliseconds limit, pid_t child) {
  const Descriptor process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  if (!process.is_open()) return true;  // it is gone already, or the caller's wait has no limit
  const auto deadline = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    pollfd descriptor{.fd = process.number(), .events = POLLIN, .revents = 0};
    const int ready = poll(&descriptor, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (ready == 0) return false;
    if (ready > 0 || errno != EINTR) return true;
  }
}

std::optional<int> status_of(pid_t child) {
  int status = 0;
  pid_t waited = 0;
  do {
    waited = waitpid(child, &status, 0);
  } while (waited < 0 && errno == EINTR);
  return waited == child ? std::optional(status) : std::nullopt;
}

}  // namespace

ChildEnd run_program(const std::vector<std::string>& words, std::chrono::milliseconds limit) {
  ChildEnd end;
  // The output is in memory, so that a full disk does not hide the reason.
  const Descriptor output(memfd_create("tutti-output", MFD_CLOEXEC));
  if (!output.is_open()) {
    end.start_error = errno;
    return end;
  }
  pid_t child = 0;
  end.start_error = Start(output.number()).run(words, child);
  if (end.start_error != 0) return end;
  end.was_late = !ends_within(limit, child);
  if (end.was_late) kill(-child, SIGKILL);
  end.status = status_of(child);
  end.output = beginning_of(output);
  return end;
}

}  // namespace tutti::backend::host
