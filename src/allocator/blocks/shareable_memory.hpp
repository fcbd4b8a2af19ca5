// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/open_captures.hpp"

#include <cstdint>

namespace tutti {

// Requests for memory that other processes are to open name their pool with a mark, its highest bit, which no
// number of a pool comes to. Where segments are expandable, which others cannot open, they are served from
// ordinary ones, which serve nobody else.

inline constexpr std::uint64_t shareable_mark = std::uint64_t{1} << 63;

[[nodiscard]] constexpr bool is_shareable(GraphPool pool) noexcept {
  return (static_cast<std::uint64_t>(pool) & shareable_mark) != 0;
}
[[nodiscard]] constexpr GraphPool shareable(GraphPool pool) noexcept {
  return GraphPool{static_cast<std::uint64_t>(pool) | shareable_mark};
}
/// Returns the pool without the mark.
[[nodiscard]] constexpr GraphPool unmarked(GraphPool pool) noexcept {
  return GraphPool{static_cast<std::uint64_t>(pool) & ~shareable_mark};
}

}  // namespace tutti
