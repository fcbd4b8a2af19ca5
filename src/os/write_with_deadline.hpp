// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace tutti {

/// Writes `text` to `descriptor`. Returns the number of bytes written; if these are not all, `errno` says
/// why. If a pipe, socket or terminal is full because nobody reads, it waits for `patience` at most, even if
/// the descriptor is a blocking one, whose flags are left as they are. Writing to a file takes as long as it
/// takes. Raises neither SIGPIPE nor SIGXFSZ.
std::size_t write_with_deadline(int descriptor, std::string_view text,
                                std::chrono::milliseconds patience) noexcept;

}  // namespace tutti
