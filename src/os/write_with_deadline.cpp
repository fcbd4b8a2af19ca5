// SPDX-License-Identifier: Apache-2.0
#include "os/write_with_deadline.hpp"

#include "os/descriptor.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tutti {
namespace {

/// Suppresses the signals of writing in this thread for the scope's lifetime.
class HeldSignals {
 public:
  HeldSignals() noexcept {
    sigemptyset(&held_);
    sigset_t pending;
    sigpending(&pending);
    // A signal that is pending already is the program's, and is blocked.
    for (const int signal : {SIGPIPE, SIGXFSZ}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&held_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &held_, &before_);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;
  ~HeldSignals() {
    const timespec at_once{};
    while (sigtimedwait(&held_, nullptr, &at_once) > 0 || errno == EINTR) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t held_{};
  sigset_t before_{};
};

/// Writes to a descriptor in pieces, without waiting for its readers.
class Sink {
 public:
  explicit Sink(int descriptor) noexcept : given_(descriptor) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return;
    is_file_ = S_ISREG(status.st_mode);
    is_socket_ = S_ISSOCK(status.st_mode);
    if (!S_ISFIFO(status.st_mode)) return;
    // Opened anew, the same pipe can be written to without blocking.
    std::array<char, 32> path{};
    std::snprintf(path.data(), path.size(), "/proc/self/fd/%d", descriptor);
    own_ = Descriptor(open(path.data(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  }

  /// Does what `write` does, but fails with EAGAIN instead of waiting.
  [[nodiscard]] ssize_t write_some(std::string_view text) const noexcept {
    if (is_socket_) return send(given_, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (own_.is_open()) return write(own_.number(), text.data(), text.size());
    if (is_file_) return write(given_, text.data(), text.size());
    // If there is room at all, PIPE_BUF bytes fit.
    pollfd room{.fd = given_, .events = POLLOUT, .revents = 0};
    if (poll(&room, 1, 0) == 1)
      return write(given_, text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    errno = EAGAIN;
    return -1;
  }

 private:
  int given_;
  Descriptor own_;
  bool is_file_ = false;
  bool is_socket_ = false;
};

}  // namespace

std::size_t write_with_deadline(int descriptor, std::string_view text,
                                std::chrono::milliseconds patience) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto latest = start + 20 * patience;  // bound for readers that are slow
  auto deadline = start + patience;
  std::size_t written = 0;
  int error = 0;
  {
    const HeldSignals held;
    const Sink sink(descriptor);
    while (written < text.size()) {
      const ssize_t count = sink.write_some(text.substr(written));
      error = count < 0 ? errno : 0;
      if (count > 0) {
        written += static_cast<std::size_t>(count);
        deadline = std::min(Clock::now() + patience, latest);
      } else if (error == EAGAIN) {
        if (Clock::now() >= deadline) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (error != EINTR) {
        break;
      }
    }
  }
  errno = error;
  return written;
}

}  // namespace tutti
