// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stream_sanitizer/watcher.hpp"
#include "tutti/stream_sanitizer_reports.hpp"

#include <string>

namespace tutti::stream_sanitizer {

/// Returns the report of a finding. `memory` names what the bytes belong to: "memory of device:0".
[[nodiscard]] Report report_of(const Finding& finding, const std::string& memory);

}  // namespace tutti::stream_sanitizer
