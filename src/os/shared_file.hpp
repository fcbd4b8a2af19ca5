// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tutti {

/// Extends a memory file to `bytes` and reserves all of them now. Returns 0, or the error number if that is
/// impossible.
///
/// Signals do not keep it from finishing, however often they come. Exceeding the process's limit on file
/// length (`ulimit -f`) gives EFBIG instead of killing the process.
[[nodiscard]] int reserve(int descriptor, std::size_t bytes) noexcept;

/// Returns the process's limit on file length in bytes, or SIZE_MAX if there is none.
[[nodiscard]] std::size_t longest_file() noexcept;

}  // namespace tutti
