// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Draws a random number other than 0, which nobody can foresee. Throws Error(internal) if the system has
/// none.
[[nodiscard]] std::uint64_t drawn_number();

}  // namespace tutti
