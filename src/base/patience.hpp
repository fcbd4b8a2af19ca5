// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/patience.hpp"

#include <chrono>
#include <optional>

namespace tutti {

/// Upper bound of every timeout: longer ones would overflow counts of nanoseconds.
inline constexpr std::chrono::milliseconds longest_limit = std::chrono::hours(24 * 365);

/// Returns the patience of the calling thread's innermost `PatienceGuard`, or nothing if there is none.
[[nodiscard]] std::optional<std::chrono::milliseconds> current_patience() noexcept;

}  // namespace tutti
