// SPDX-License-Identifier: Apache-2.0
#include "perf/report/output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

/// Terminals that have any room take so much at once.
constexpr std::size_t piece = 256;

}  // namespace

void Output::print(const std::string& text) const {
  if (!speaks_ || is_closed_) return;
  if (std::fputs(text.c_str(), stdout) != EOF && std::fflush(stdout) != EOF) return;
  is_closed_ = true;
  is_broken_ = errno != EPIPE;
}

void Output::complain(const std::string& text) const {
  if (speaks_) fmt::print(stderr, "{}: {}\n", program_, text);
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
