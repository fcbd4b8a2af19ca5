// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tutti {

/// Makes a file of memory `bytes` long, and takes all of them from the system now. Returns 0, or the error
/// number why that cannot be had.
///
/// Signals, however often they come, do not keep it from ending, and the process may go beyond its limit on
/// the length of files (`ulimit -f`) without being killed: that is EFBIG.
[[nodiscard]] int reserve(int descriptor, std::size_t bytes) noexcept;

/// The limit, in bytes; SIZE_MAX if there is none.
[[nodiscard]] std::size_t longest_file() noexcept;

}  // namespace tutti
