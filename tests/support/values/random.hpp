// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>

namespace tutti::test {

/// A counter-based generator (SplitMix64): returns number `index` of `seed`, the same on all machines.
[[nodiscard]] constexpr std::uint64_t random_at(std::uint64_t seed, std::uint64_t index) noexcept {
  std::uint64_t z = seed * 0xd1342543de82ef95ULL + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31U);
}

/// Draws the same numbers one after another.
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) noexcept : seed_(seed) {}

  constexpr std::uint64_t next() noexcept { return random_at(seed_, index_++); }
  /// Draws a number from `low` to `high`, both included.
  constexpr std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  constexpr bool one_in(std::int64_t count) noexcept { return between(1, count) == 1; }
  template <class Container>
  constexpr const auto& pick(const Container& values) noexcept {
    return values[static_cast<std::size_t>(next() % std::size(values))];
  }

 private:
  std::uint64_t seed_;
  std::uint64_t index_ = 0;
};

}  // namespace tutti::test
