// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Adds a number to a hash. The hash does not resist collisions that somebody makes on purpose.
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t number) noexcept {
  hash = (hash ^ number) * 0xff51afd7ed558ccdU;
  return hash ^ hash >> 32U;
}

}  // namespace tutti
