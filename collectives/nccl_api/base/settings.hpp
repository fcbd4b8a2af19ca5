// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator_options.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace tutti::nccl_api {

/// Says which communicators NCCL itself carries.
enum class Fallback : std::uint8_t {
  automatic,  ///< those that tutti does not carry
  off,        ///< none: those that tutti does not carry are refused
  always,     ///< all
};

/// Holds the environment variables that only this interface reads.
struct Settings {
  /// `TUTTI_DETERMINISM`: `fastest` or `bitwise`.
  Determinism determinism = Determinism::fastest;
  /// `TUTTI_PATIENCE`, as the library reads it; the default is below the ten minutes of PyTorch's watchdog.
  std::chrono::seconds patience{540};
  /// `TUTTI_JOIN_TIMEOUT`: how many seconds ranks wait until all have come. Unset: as long as `patience`.
  std::chrono::seconds join_timeout{540};
  /// `TUTTI_NCCL_FALLBACK`: `auto`, `off`, `always`, or the path of NCCL's library.
  Fallback fallback = Fallback::automatic;
  std::optional<std::string> nccl_path;

  /// Returns the process's settings, as they were at the first call. Throws Error(invalid_argument) for a
  /// variable with an invalid value.
  [[nodiscard]] static const Settings& get();
};

}  // namespace tutti::nccl_api
