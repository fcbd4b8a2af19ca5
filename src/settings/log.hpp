// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace tutti {

/// One line to standard error, written at once: something works, but not as well as asked for (`TUTTI_LOG` is
/// `warn`, the default, or `info`).
///
/// Never throws, raises no signal, and holds nobody up: where nobody reads, it waits for `log_patience` at
/// most, and not at all after a line that could not be written. Such lines are dropped, and counted in front
/// of the next one that can be.
void log_warning(std::string_view message) noexcept;
/// The same for choices the library made (`TUTTI_LOG` is `info`).
void log_info(std::string_view message) noexcept;

inline constexpr std::chrono::milliseconds log_patience{100};

}  // namespace tutti
