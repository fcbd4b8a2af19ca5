// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

[[nodiscard]] constexpr std::uint64_t divide_up(std::uint64_t value, std::uint64_t step) noexcept {
  return (value + step - 1) / step;
}
/// Rounds up to a multiple of `step`.
[[nodiscard]] constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) noexcept {
  return divide_up(value, step) * step;
}

}  // namespace tutti
