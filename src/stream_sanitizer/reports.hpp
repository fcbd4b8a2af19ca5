// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream_sanitizer/watcher.hpp"
#include "tutti/stream_sanitizer.hpp"

#include <string>

namespace tutti::stream_sanitizer {

/// The finding in words. `memory` says what lies there: "memory of device:0".
[[nodiscard]] Report report_of(const Finding& finding, const std::string& memory);

}  // namespace tutti::stream_sanitizer
