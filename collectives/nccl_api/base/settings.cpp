// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/settings.hpp"

#include "settings/environment.hpp"
#include "tutti/error.hpp"

#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

constexpr int longest_join_seconds = 86400;

std::string_view value_of(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

[[noreturn]] void refuse_value(const char* name, std::string_view expected) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{} is '{}', expected {}", name, value_of(name), expected));
}

Determinism determinism_of_environment() {
  const std::string_view value = value_of("TUTTI_DETERMINISM");
  if (value == "bitwise") return Determinism::bitwise;
  if (value.empty() || value == "fastest") return Determinism::fastest;
  refuse_value("TUTTI_DETERMINISM", "fastest or bitwise");
}

std::optional<std::chrono::seconds> join_timeout_of_environment() {
  const std::string_view value = value_of("TUTTI_JOIN_TIMEOUT");
  if (value.empty()) return std::nullopt;
  int seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size() || seconds < 1 ||
      seconds > longest_join_seconds)
    refuse_value("TUTTI_JOIN_TIMEOUT", fmt::format("1 to {} seconds", longest_join_seconds));
  return std::chrono::seconds(seconds);
}

void read_fallback(Settings& settings) {
  const std::string_view value = value_of("TUTTI_NCCL_FALLBACK");
  if (value.empty() || value == "auto") return;
  if (value.find('/') != std::string_view::npos) {
    settings.nccl_path = value;
  } else if (value == "off") {
    settings.fallback = Fallback::off;
  } else if (value == "always") {
    settings.fallback = Fallback::always;
  } else {
    refuse_value("TUTTI_NCCL_FALLBACK", "auto, off, always or the path of NCCL's library");
  }
}

Settings read_settings() {
  Settings settings;
  settings.determinism = determinism_of_environment();
  settings.patience = Environment::get().patience.value_or(settings.patience);
  settings.join_timeout = join_timeout_of_environment().value_or(settings.patience);
  read_fallback(settings);
  return settings;
}

}  // namespace

const Settings& Settings::get() {
  static const Settings settings = read_settings();
  return settings;
}

}  // namespace tutti::nccl_api
