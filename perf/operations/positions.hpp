// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// What values are made from: positions in the imaginary array.
namespace tutti::perf {

constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15ULL;

/// The upper bits are well mixed; one multiplication, because checking must keep up with GiB.
constexpr std::uint64_t hash(std::uint64_t position, std::uint64_t salt) noexcept {
  return (position + salt) * golden_ratio;
}

/// Consecutive positions of the array.
struct Positions {
  std::uint64_t first;
  std::size_t count;
};

}  // namespace tutti::perf
