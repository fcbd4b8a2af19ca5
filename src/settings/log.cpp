// SPDX-License-Identifier: Apache-2.0
#include "settings/log.hpp"

#include "os/write_with_deadline.hpp"
#include "settings/environment.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

namespace tutti {
namespace {

void log(LogLevel level, std::string_view label, std::string_view message) noexcept {
  static std::atomic<std::uint64_t> unwritten = 0;
  static std::atomic<bool> is_cut = false;  // the last line was written in part only
  std::uint64_t lost = 0;
  try {
    if (Environment::get().log < level) return;
    lost = unwritten.exchange(0);
    // One write, so that lines of several threads do not mix.
    std::string text = is_cut.load() ? "\n" : "";
    if (lost != 0) text += fmt::format("tutti: warning: {} earlier messages could not be written\n", lost);
    text += fmt::format("tutti: {}{}\n", label, message);
    const std::size_t written =
        write_with_deadline(STDERR_FILENO, text, lost == 0 ? log_patience : std::chrono::milliseconds(0));
    if (written == text.size()) {
      is_cut.store(false);
      return;
    }
    if (written != 0) is_cut.store(text[written - 1] != '\n');
  } catch (const std::exception&) {
    // A message that cannot be written is not worth a failure; a bad variable is reported when the library
    // starts.
  }
  unwritten += lost + 1;
}

}  // namespace

void log_warning(std::string_view message) noexcept {
  log(LogLevel::warn, "warning: ", message);
}

void log_info(std::string_view message) noexcept {
  log(LogLevel::info, "", message);
}

}  // namespace tutti
