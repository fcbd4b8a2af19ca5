#include "log.hpp"

#include "backend/environment.hpp"

#include <cstdio>
#include <exception>

#include <fmt/format.h>

namespace tutti {
namespace {

void log(LogLevel level, std::string_view label, std::string_view message) noexcept {
  try {
    if (Environment::get().log < level) return;
    // One write, so that lines of several threads do not mix.
    const std::string line = fmt::format("tutti: {}{}\n", label, message);
    std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (const std::exception&) {
    // A message that cannot be written is not worth a failure; a bad variable is reported when the library
    // starts.
  }
}

}  // namespace

void log_warning(std::string_view message) noexcept {
  log(LogLevel::warn, "warning: ", message);
}

void log_info(std::string_view message) noexcept {
  log(LogLevel::info, "", message);
}

}  // namespace tutti
