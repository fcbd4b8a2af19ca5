// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/rng.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::test {

/// The parts of a generator's state.
struct GeneratorState {
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const GeneratorState&, const GeneratorState&) = default;
};

/// Reads the documented form byte by byte.
inline GeneratorState unpack(const RngState& bytes) {
  GeneratorState state;
  for (std::size_t i = 8; i-- > 0;) {
    state.seed = state.seed << 8U | std::to_integer<std::uint64_t>(bytes[i]);
    state.offset = state.offset << 8U | std::to_integer<std::uint64_t>(bytes[8 + i]);
  }
  return state;
}

inline RngState pack(const GeneratorState& state) {
  RngState bytes{};
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<std::byte>(state.seed >> (8 * i));
    bytes[8 + i] = static_cast<std::byte>(state.offset >> (8 * i));
  }
  return bytes;
}

}  // namespace tutti::test
