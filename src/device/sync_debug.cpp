// SPDX-License-Identifier: Apache-2.0
#include "tutti/sync_debug.hpp"

#include "base/quoted_text.hpp"
#include "device/blocking_call.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <exception>

#include <fmt/format.h>

namespace tutti {

std::string_view name_of(SyncDebugMode mode) noexcept {
  switch (mode) {
    case SyncDebugMode::none:
      return "default";
    case SyncDebugMode::warn:
      return "warn";
    case SyncDebugMode::error:
      return "error";
  }
  return "unknown";
}

void set_sync_debug_mode(SyncDebugMode mode) {
  if (mode > SyncDebugMode::error) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("set_sync_debug_mode: mode is {}, expected one of SyncDebugMode",
                            static_cast<int>(mode)));
  }
  BlockingCall::debug_mode.store(mode);
}

void set_sync_debug_mode(std::string_view mode) {
  constexpr std::size_t longest_shown = 60;
  for (const SyncDebugMode known : {SyncDebugMode::none, SyncDebugMode::warn, SyncDebugMode::error}) {
    if (mode == name_of(known)) return set_sync_debug_mode(known);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("set_sync_debug_mode: mode is \"{}\", expected default, warn or error",
                          quoted_text(mode, longest_shown)));
}

SyncDebugMode get_sync_debug_mode() noexcept {
  return BlockingCall::debug_mode.load();
}

void BlockingCall::announce(std::string_view function) {
  if (get_sync_debug_mode() != SyncDebugMode::error) return announce_in_log(function);
  throw Error(
      ErrorCode::unsupported,
      fmt::format(
          "{}: the call would block the calling thread until a device has made progress, expected none "
          "that does, as the sync debug mode is error",
          function));
}

void BlockingCall::announce_in_log(std::string_view function) noexcept {
  try {
    log_warning(
        fmt::format("{}: the call blocks the calling thread until a device has made progress", function));
  } catch (const std::exception&) {
    return;  // no memory for a line that nobody's work depends on
  }
}

void announce_blocking(std::string_view function) {
  const BlockingCall blocks(function);
}
void warn_of_blocking(std::string_view function) noexcept {
  BlockingCall::warn(function);
}

}  // namespace tutti
