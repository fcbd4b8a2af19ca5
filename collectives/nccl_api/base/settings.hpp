// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator_options.hpp"

#include <chrono>

namespace tutti::nccl_api {

/// Holds the environment variables that only this interface reads.
struct Settings {
  /// `TUTTI_DETERMINISM`: `fastest` or `bitwise`.
  Determinism determinism = Determinism::fastest;
  /// `TUTTI_PATIENCE`, as the library reads it; the default is below the ten minutes of PyTorch's watchdog.
  std::chrono::seconds patience{540};
  /// `TUTTI_JOIN_TIMEOUT`: how many seconds ranks wait until all have come. Unset: as long as `patience`.
  std::chrono::seconds join_timeout{540};

  /// Returns the process's settings, as they were at the first call. Throws Error(invalid_argument) for a
  /// variable with an invalid value.
  [[nodiscard]] static const Settings& get();
};

}  // namespace tutti::nccl_api
