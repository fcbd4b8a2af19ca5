// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <string_view>

#include <fmt/format.h>

namespace tutti {

/// Throws Error(unsupported) on virtual devices.
inline void require_gpus(std::string_view function) {
  if (backend_kind() == BackendKind::cuda) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("{}: the devices in use are virtual devices, expected GPUs", function));
}

}  // namespace tutti
