// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

namespace tutti {

/// Writes one line to standard error at once, if `TUTTI_LOG` is `warn` (the default) or `info`: something
/// works, but not as well as asked for.
///
/// Never throws, raises no signal, and does not block for long: if nobody reads, it waits for `log_patience`
/// at most, and not at all after a line that could not be written. Such lines are dropped and counted; the
/// next line that can be written begins with the count.
void log_warning(std::string_view message) noexcept;
/// Does the same for choices that the library has made, if `TUTTI_LOG` is `info`.
void log_info(std::string_view message) noexcept;

inline constexpr std::chrono::milliseconds log_patience{100};

}  // namespace tutti
