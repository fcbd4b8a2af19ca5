// SPDX-License-Identifier: Apache-2.0
#include "perf/report/output.hpp"

#include "perf/processes/interrupt.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

using namespace std::chrono_literals;

/// Whoever has stopped reading is waited for so long once the run is to end.
constexpr std::chrono::milliseconds last_patience = 500ms;
/// Pipes that have any room take so much at once, and terminals most of it.
constexpr std::size_t piece = 256;

/// Whether something can be written, now or when somebody reads; false, with EAGAIN, if an interrupt has come
/// meanwhile, and nobody has.
bool wait_for_room(int file) {
  for (;;) {
    pollfd room{.fd = file, .events = POLLOUT, .revents = 0};
    const int found = poll(&room, 1, 100);
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return false;
    const auto since = time_since_interrupt();
    if (since && *since > last_patience) {
      errno = EAGAIN;
      return false;
    }
  }
}

/// False, with the reason in `errno`.
bool write_all(int file, std::string_view text) {
  while (!text.empty()) {
    if (!wait_for_room(file)) return false;
    const ssize_t written = ::write(file, text.data(), std::min(text.size(), piece));
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

void Output::print(const std::string& text) const {
  if (!speaks_ || is_broken_ || has_lost_its_reader_ || has_given_up_) return;
  if (std::fflush(stdout) != EOF && write_all(STDOUT_FILENO, text)) return;
  (errno == EPIPE ? has_lost_its_reader_ : errno == EAGAIN ? has_given_up_ : is_broken_) = true;
}

void Output::complain(const std::string& text) const {
  if (speaks_) static_cast<void>(write_all(STDERR_FILENO, fmt::format("{}: {}\n", program_, text)));
}

Progress::Progress(bool speaks) : visible_(speaks && isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) const {
  if (!visible_) return;
  winsize size{};
  // The cursor stays behind the text: a full line would be followed by another.
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  const std::size_t room = is_known ? std::size_t{size.ws_col} - 1 : text.size();
  pollfd terminal{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&terminal, 1, 0) != 1) return;  // nobody sees it
  const std::string line = fmt::format("\r\033[K{}", text.substr(0, room));
  static_cast<void>(::write(STDERR_FILENO, line.data(), std::min(line.size(), piece)) < 0);
}

}  // namespace tutti::perf
