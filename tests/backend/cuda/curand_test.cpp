// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/curand_words.hpp"
#include "backend/philox.hpp"
#include "support/values/rng_state.hpp"
#include "tutti/rng.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// The generator is cuRAND's Philox.
namespace tutti::test {
namespace {

struct Place {
  std::uint64_t seed;
  std::uint64_t subsequence;
  std::uint64_t offset;
};

constexpr std::size_t words_compared = 1003;

constexpr Place places[] = {
    {0, 0, 0},
    {42, 0, 4},
    {default_rng_seed, 0, 1'000'000},
    {~std::uint64_t{0}, 0, (std::uint64_t{1} << 34) - 8},  // the block's number passes 2^32
    {0x123456789abcdef0, 1, 0},
    {7, (std::uint64_t{1} << 32) + 5, 400},
    {1, ~std::uint64_t{0}, 12},
};

TEST(CurandPhilox, GivesTheSameWordsForSeedSubsequenceAndOffset) {
  for (const Place& place : places) {
    const std::vector<std::uint32_t> expected =
        curand_words(place.seed, place.subsequence, place.offset, words_compared);
    ASSERT_EQ(expected.size(), words_compared);
    for (std::size_t i = 0; i < words_compared; ++i) {
      const backend::PhiloxWords block =
          backend::philox_block(place.seed, (place.offset + i) / 4, place.subsequence);
      ASSERT_EQ(block.word[(place.offset + i) % 4], expected[i])
          << "word " << i << " of seed " << place.seed << ", subsequence " << place.subsequence << ", offset "
          << place.offset;
    }
  }
}

TEST(CurandPhilox, IsWhatFillsAreMadeFrom) {
  for (const Place& place : places) {
    if (place.subsequence != 0) continue;  // fills have the first one
    const std::vector<std::uint32_t> words = curand_words(place.seed, 0, place.offset, words_compared);
    ASSERT_EQ(words.size(), words_compared);
    const Tensor singles = empty({words_compared}, {.device = Device(0)});
    set_rng_state(pack({.seed = place.seed, .offset = place.offset}), 0);
    uniform_(singles);
    const std::vector<float> floats = singles.to_vector<float>();
    for (std::size_t i = 0; i < words_compared; ++i)
      ASSERT_EQ(floats[i], std::ldexp(static_cast<float>(words[i] >> 8U), -24)) << "element " << i;

    const Tensor doubles_there = empty({words_compared / 2}, {.dtype = DType::float64, .device = Device(0)});
    set_rng_state(pack({.seed = place.seed, .offset = place.offset}), 0);
    uniform_(doubles_there);
    const std::vector<double> doubles = doubles_there.to_vector<double>();
    for (std::size_t i = 0; i < doubles.size(); ++i) {
      const std::uint64_t both = std::uint64_t{words[2 * i + 1]} << 32U | words[2 * i];
      ASSERT_EQ(doubles[i], std::ldexp(static_cast<double>(both >> 11U), -53)) << "element " << i;
    }
  }
}

}  // namespace
}  // namespace tutti::test
