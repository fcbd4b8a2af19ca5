// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "backend/philox.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numbers>

#include <gtest/gtest.h>

namespace tutti::backend {
namespace {

void expect_words(const PhiloxWords& words, std::array<std::uint32_t, 4> expected) {
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(words.word[i], expected[i]) << "word " << i;
}

TEST(Philox, MatchesThePublishedKnownAnswers) {
  constexpr std::uint32_t ones = 0xffffffffU;
  expect_words(philox4x32_10({{0, 0, 0, 0}}, 0, 0), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  expect_words(philox4x32_10({{ones, ones, ones, ones}}, ones, ones),
               {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  expect_words(philox4x32_10({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
               {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST(Philox, BlocksUseSeedAndIndexWhole) {
  const PhiloxWords words = philox_block(0x299f31d0a4093822ULL, 0x85a308d3243f6a88ULL);
  const PhiloxWords expected = philox4x32_10({{0x243f6a88, 0x85a308d3, 0, 0}}, 0xa4093822, 0x299f31d0);
  expect_words(words, {expected.word[0], expected.word[1], expected.word[2], expected.word[3]});
}

TEST(Philox, LogarithmsAreAccurate) {
  for (int i = 1; i < 4000; ++i) {
    const float x = static_cast<float>(i) / 4000.0F;
    const double exact = std::log(static_cast<double>(x));
    EXPECT_NEAR(detail::natural_log(x), exact, 1.5e-7 * std::abs(exact)) << x;
    const double y = static_cast<double>(i) / 4000.0;
    EXPECT_NEAR(detail::natural_log(y), std::log(y), 4e-16 * std::abs(std::log(y))) << y;
  }
  EXPECT_NEAR(detail::natural_log(0x1p-33F), -33 * std::numbers::ln2, 1e-6);
  EXPECT_NEAR(detail::natural_log(0x1p-65), -65 * std::numbers::ln2, 1e-14);
  EXPECT_EQ(detail::natural_log(1.0F), 0.0F);
  EXPECT_EQ(detail::natural_log(1.0), 0.0);
}

TEST(Philox, DirectionsAreAccurate) {
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::uint32_t turn32 = i * 0xd1b71U;
    const double angle32 = turn32 * 0x1p-32 * 2 * std::numbers::pi;
    const auto d32 = detail::direction(turn32);
    EXPECT_NEAR(d32.cosine, std::cos(angle32), 1.2e-7);
    EXPECT_NEAR(d32.sine, std::sin(angle32), 1.2e-7);
    const std::uint64_t turn64 = std::uint64_t{i} * 0xd1b71758e21965ULL;
    const long double angle64 =
        static_cast<long double>(turn64) * 0x1p-64L * 2 * std::numbers::pi_v<long double>;
    const auto d64 = detail::direction(turn64);
    EXPECT_NEAR(d64.cosine, static_cast<double>(std::cos(angle64)), 3e-16);
    EXPECT_NEAR(d64.sine, static_cast<double>(std::sin(angle64)), 3e-16);
  }
}

TEST(Philox, OffsetsAdvanceByWholeBlocks) {
  EXPECT_EQ(random_offset_advance(DType::float32, 0), 0U);
  EXPECT_EQ(random_offset_advance(DType::float32, 1), 4U);
  EXPECT_EQ(random_offset_advance(DType::float32, 4), 4U);
  EXPECT_EQ(random_offset_advance(DType::bfloat16, 5), 8U);
  EXPECT_EQ(random_offset_advance(DType::float64, 2), 4U);
  EXPECT_EQ(random_offset_advance(DType::float64, 3), 8U);
}

template <class T>
class HostRandom : public HostMachine {
 protected:
  std::vector<T> random(std::size_t count, Distribution distribution, double first, double second,
                        std::uint64_t seed = 12345, std::uint64_t offset = 0) {
    T* target = this->template allocate<T>(0, count);
    machine().random_fill(machine().default_stream(0), {.target = bytes_of(target),
                                                        .count = count,
                                                        .dtype = dtype_of<T>,
                                                        .distribution = distribution,
                                                        .first = first,
                                                        .second = second,
                                                        .seed = seed,
                                                        .offset = offset});
    return download(0, target, count);
  }

  static double number(T value) {
    if constexpr (std::is_same_v<T, double>)
      return value;
    else
      return static_cast<double>(static_cast<float>(value));
  }

  static bool same_bits(const T* a, const T* b, std::size_t count) {
    return std::memcmp(static_cast<const void*>(a), static_cast<const void*>(b), count * sizeof(T)) == 0;
  }

  /// The mean of the values' `power`-th powers.
  static double moment(const std::vector<T>& values, int power) {
    double sum = 0;
    for (const T value : values) sum += std::pow(number(value), power);
    return sum / static_cast<double>(values.size());
  }
};

using RandomTypes = testing::Types<Float16, BFloat16, float, double>;
TYPED_TEST_SUITE(HostRandom, RandomTypes);

TYPED_TEST(HostRandom, UniformStaysInItsRange) {
  for (const auto& [low, high] :
       {std::pair(0.0, 1.0), std::pair(-3.0, 5.0), std::pair(1.0, 1.0 + 1.0 / 64)}) {
    for (const auto value : this->random(200'000, Distribution::uniform, low, high)) {
      ASSERT_GE(this->number(value), low);
      ASSERT_LT(this->number(value), high);
    }
  }
}

TYPED_TEST(HostRandom, UniformHasTheRightMoments) {
  const auto values = this->random(400'000, Distribution::uniform, 0.0, 1.0);
  // Values are cut, not rounded: coarse types are low by half a unit.
  const double bias =
      std::is_same_v<TypeParam, double> ? 0 : std::ldexp(0.5, -int{detail::significand_bits<TypeParam>});
  EXPECT_NEAR(this->moment(values, 1), 0.5 - bias, 0.002);
  EXPECT_NEAR(this->moment(values, 2), 1.0 / 3 - bias, 0.002);
}

TYPED_TEST(HostRandom, NormalHasTheRightMoments) {
  const auto values = this->random(400'000, Distribution::normal, 0.0, 1.0);
  EXPECT_NEAR(this->moment(values, 1), 0.0, 0.01);
  EXPECT_NEAR(this->moment(values, 2), 1.0, 0.02);
  EXPECT_NEAR(this->moment(values, 3), 0.0, 0.03);
  EXPECT_NEAR(this->moment(values, 4), 3.0, 0.1);
  const auto shifted = this->random(400'000, Distribution::normal, 10.0, 2.0);
  EXPECT_NEAR(this->moment(shifted, 1), 10.0, 0.02);
}

TYPED_TEST(HostRandom, ElementsDependOnTheirPlaceInTheStreamOnly) {
  for (const auto distribution : {Distribution::uniform, Distribution::normal}) {
    const auto whole = this->random(1003, distribution, 0.0, 1.0);
    const auto prefix = this->random(501, distribution, 0.0, 1.0);
    EXPECT_TRUE(this->same_bits(prefix.data(), whole.data(), prefix.size()));
    const std::uint64_t offset = random_offset_advance(dtype_of<TypeParam>, 400);
    const auto rest = this->random(603, distribution, 0.0, 1.0, 12345, offset);
    EXPECT_TRUE(this->same_bits(rest.data(), whole.data() + 400, rest.size()));
    const auto other_seed = this->random(1003, distribution, 0.0, 1.0, 54321);
    EXPECT_FALSE(this->same_bits(other_seed.data(), whole.data(), whole.size()));
  }
}

TYPED_TEST(HostRandom, ReadsSeedAndOffsetFromMemoryWhenItRuns) {
  const std::uint64_t offset = random_offset_advance(dtype_of<TypeParam>, 400);
  const auto expected = this->random(603, Distribution::normal, 0.0, 1.0, 54321, offset + 8);
  std::uint64_t* const state = this->upload(0, std::vector<std::uint64_t>{1, 0});
  TypeParam* const target = this->template allocate<TypeParam>(0, 603);
  const auto stream = this->machine().default_stream(0);
  Fill fill{.target = bytes_of(state), .count = 1, .element_bytes = 16};
  fill.value = std::bit_cast<std::array<std::byte, 16>>(std::array<std::uint64_t, 2>{54321, offset});
  this->machine().fill(stream, fill);
  this->machine().random_fill(stream, {.target = bytes_of(target),
                                       .count = 603,
                                       .dtype = dtype_of<TypeParam>,
                                       .distribution = Distribution::normal,
                                       .first = 0.0,
                                       .second = 1.0,
                                       .seed = 7,
                                       .offset = 8,
                                       .state = state});
  const auto values = this->download(0, target, 603);
  EXPECT_TRUE(this->same_bits(values.data(), expected.data(), expected.size()));
}

TEST(Philox, UniformElementsAreTheLeadingBitsOfTheirWords) {
  const PhiloxWords words = philox_block(7, 3);
  float floats[4];
  uniform_block<float>(7, 3, 0.0, 1.0, floats);
  Float16 halves[4];
  uniform_block<Float16>(7, 3, 0.0, 1.0, halves);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(floats[i], static_cast<float>(words.word[i] >> 8U) * 0x1p-24F);
    EXPECT_EQ(static_cast<float>(halves[i]), static_cast<float>(words.word[i] >> 21U) * 0x1p-11F);
  }
  double doubles[2];
  uniform_block<double>(7, 3, 0.0, 1.0, doubles);
  const std::uint64_t joined = std::uint64_t{words.word[3]} << 32U | words.word[2];
  EXPECT_EQ(doubles[1], static_cast<double>(joined >> 11U) * 0x1p-53);
}

}  // namespace
}  // namespace tutti::backend
