// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/patience.hpp"

#include <chrono>
#include <optional>

namespace tutti {

/// Longer waits would not fit where time is counted in nanoseconds.
inline constexpr std::chrono::milliseconds longest_limit = std::chrono::hours(24 * 365);

/// What the calling thread's innermost `PatienceGuard` says; nothing without one.
[[nodiscard]] std::optional<std::chrono::milliseconds> current_patience() noexcept;

}  // namespace tutti
