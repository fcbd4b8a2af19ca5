// SPDX-License-Identifier: Apache-2.0
#include "os/shared_file.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>

#include <fcntl.h>
#include <sys/resource.h>

namespace tutti {
namespace {

/// Bound on the memory whose reservation a signal may undo, even one that cannot be blocked.
constexpr std::size_t largest_piece = std::size_t{16} << 20;
constexpr std::size_t smallest_piece = 4096;
/// Number of interruptions in a row of the smallest piece after which it gives up.
constexpr int most_fruitless_tries = 1000;

/// Blocks all signals of the calling thread for its lifetime: before Linux 6.11, a signal that arrives while
/// memory is being reserved undoes the reservation.
class NoSignals {
 public:
  NoSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
    had_too_long_ = has_too_long();
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() {
    // This signal repeats what the error number says.
    if (!had_too_long_ && has_too_long()) {
      sigset_t too_long;
      sigemptyset(&too_long);
      sigaddset(&too_long, SIGXFSZ);
      const timespec at_once{};
      sigtimedwait(&too_long, nullptr, &at_once);
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  static bool has_too_long() noexcept {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGXFSZ) == 1;
  }

  sigset_t before_{};
  bool had_too_long_ = false;
};

}  // namespace

int reserve(int descriptor, std::size_t bytes) noexcept {
  if (bytes > longest_file()) return EFBIG;
  const NoSignals no_signals;
  std::size_t piece = largest_piece;
  int fruitless_tries = 0;
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t next = std::min(piece, bytes - done);
    const int status = posix_fallocate(descriptor, static_cast<off_t>(done), static_cast<off_t>(next));
    if (status == 0) {
      done += next;
      fruitless_tries = 0;
    } else if (status != EINTR || ++fruitless_tries == most_fruitless_tries) {
      return status;
    } else {
      piece = std::max(piece / 2, smallest_piece);
    }
  }
  return 0;
}

std::size_t longest_file() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  return limit.rlim_cur;
}

}  // namespace tutti
