// SPDX-License-Identifier: Apache-2.0
#include "tutti/float_types.hpp"

#include "support/environment.hpp"
#include "support/values/number_formats.hpp"
#include "support/values/random.hpp"
#include "support/values/reference_sum.hpp"
#include "tutti/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace tutti {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float largest_float = std::numeric_limits<float>::max();
constexpr float quiet_nan = std::numeric_limits<float>::quiet_NaN();

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// One of the small formats, its patterns as integers.
template <class T>
struct SmallFloat : testing::Test {
  using Bits = decltype(T::bits);
  static constexpr test::NumberFormat format = test::format_of(dtype_of<T>);
  static constexpr unsigned magnitude_bits = format.exponent_bits + format.mantissa_bits;
  static constexpr std::uint32_t sign_bit = 1U << magnitude_bits;
  static constexpr std::uint32_t all_ones = sign_bit - 1U;
  static constexpr std::uint32_t exponent_ones = ((1U << format.exponent_bits) - 1U) << format.mantissa_bits;
  static constexpr std::uint32_t largest = format.has_infinity ? exponent_ones - 1U : all_ones - 1U;
  static constexpr std::uint32_t overflow = format.has_infinity ? exponent_ones : all_ones;
  static constexpr std::uint32_t nan =
      format.has_infinity ? exponent_ones | 1U << (format.mantissa_bits - 1U) : all_ones;

  static T from_bits(std::uint32_t bits) { return std::bit_cast<T>(static_cast<Bits>(bits)); }
  static float widen(std::uint32_t bits) { return static_cast<float>(from_bits(bits)); }
  static std::uint32_t narrow(float value) { return T(value).bits; }
  static bool is_nan(std::uint32_t bits) {
    const std::uint32_t magnitude = bits & all_ones;
    return format.has_infinity ? magnitude > exponent_ones : magnitude == all_ones;
  }
  static bool is_finite(std::uint32_t bits) { return (bits & all_ones) <= largest; }
};

using SmallFloats = testing::Types<Float16, BFloat16, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(SmallFloat, SmallFloats);

TYPED_TEST(SmallFloat, WidensEveryPatternToTheValueItsFormatDefines) {
  using F = TestFixture;
  for (std::uint32_t bits = 0; bits < 2 * F::sign_bit; ++bits) {
    const float value = F::widen(bits);
    if (F::is_nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else if (F::is_finite(bits)) {
      // The reference knows magnitudes; -0 must keep its sign too.
      const float magnitude = test::decode_small_float(dtype_of<TypeParam>, bits & F::all_ones);
      ASSERT_EQ(bits_of(value), bits_of((bits & F::sign_bit) != 0 ? -magnitude : magnitude)) << bits;
    } else {
      ASSERT_EQ(value, (bits & F::sign_bit) != 0 ? -infinity : infinity) << bits;
    }
  }
}

TYPED_TEST(SmallFloat, NarrowsEveryValueItHasToItsPattern) {
  using F = TestFixture;
  for (std::uint32_t bits = 0; bits < 2 * F::sign_bit; ++bits) {
    ASSERT_EQ(F::narrow(F::widen(bits)), F::is_nan(bits) ? F::nan : bits) << bits;
  }
}

TYPED_TEST(SmallFloat, RoundsToNearestWithTiesToEvenBetweenAllNeighbours) {
  using F = TestFixture;
  for (const std::uint32_t sign : {0U, F::sign_bit}) {
    for (std::uint32_t below = 0; below < F::largest; ++below) {
      // Both neighbours have so few bits that the middle is exact in float32, for BFloat16 subnormals
      // included.
      const double low = F::widen(below | sign);
      const double high = F::widen((below + 1) | sign);
      const auto middle = static_cast<float>((low + high) / 2);
      ASSERT_EQ(static_cast<double>(middle), (low + high) / 2);
      const std::uint32_t even = (below & 1U) == 0 ? below : below + 1;
      ASSERT_EQ(F::narrow(middle), even | sign) << below;
      ASSERT_EQ(F::narrow(std::nextafter(middle, static_cast<float>(low))), below | sign) << below;
      ASSERT_EQ(F::narrow(std::nextafter(middle, static_cast<float>(high))), (below + 1) | sign) << below;
    }
  }
}

TYPED_TEST(SmallFloat, RoundsADenseSampleOfAllFloatsAsTheReferenceDoes) {
  using F = TestFixture;
  const std::int64_t samples = test::scaled(1'000'000);
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto bits =
        static_cast<std::uint32_t>(test::random_at(test::test_seed(), static_cast<std::uint64_t>(i)));
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(F::narrow(value), test::encode_small_float(dtype_of<TypeParam>, value)) << value;
  }
}

TYPED_TEST(SmallFloat, OverflowsHalfAStepAboveTheLargestValue) {
  using F = TestFixture;
  const double last = F::widen(F::largest);
  const double step = last - static_cast<double>(F::widen(F::largest - 1));
  // The value that would come next has an odd or an even pattern; the tie goes to the even one.
  const std::uint32_t at_tie = (F::largest & 1U) == 0 ? F::largest : F::overflow;
  const auto tie = static_cast<float>(last + step / 2);
  EXPECT_EQ(F::narrow(tie), at_tie);
  EXPECT_EQ(F::narrow(std::nextafter(tie, 0.0F)), F::largest);
  EXPECT_EQ(F::narrow(std::nextafter(tie, infinity)), F::overflow);
  for (const float huge : {infinity, largest_float}) {
    EXPECT_EQ(F::narrow(huge), F::overflow);
    EXPECT_EQ(F::narrow(-huge), F::format.has_infinity ? F::overflow | F::sign_bit : F::nan);
  }
}

TYPED_TEST(SmallFloat, UnderflowsToZeroOfTheSameSign) {
  using F = TestFixture;
  const float half = std::ldexp(1.0F, -static_cast<int>(F::format.bias() + F::format.mantissa_bits));
  EXPECT_EQ(F::narrow(half), 0U);  // a tie between 0 and the smallest subnormal
  EXPECT_EQ(F::narrow(std::nextafter(half, 1.0F)), 1U);
  EXPECT_EQ(F::narrow(-half), F::sign_bit);
  EXPECT_EQ(F::narrow(-std::numeric_limits<float>::denorm_min()), F::sign_bit);
  EXPECT_EQ(F::narrow(-0.0F), F::sign_bit);
}

TYPED_TEST(SmallFloat, TurnsEveryNaNIntoTheCanonicalOne) {
  using F = TestFixture;
  for (const std::uint32_t bits : {0x7fc00000U, 0xffc00000U, 0x7f800001U, 0xffffffffU}) {
    EXPECT_EQ(F::narrow(std::bit_cast<float>(bits)), F::nan);
  }
}

TYPED_TEST(SmallFloat, ComparesBitsNotValues) {
  using F = TestFixture;
  EXPECT_NE(F::from_bits(0), F::from_bits(F::sign_bit));
  EXPECT_EQ(F::from_bits(F::nan), F::from_bits(F::nan));
}

TEST(SmallFloats, ConvertAtCompileTime) {
  static_assert(Float16(1.0F).bits == 0x3c00);
  static_assert(Float16(65504.0F).bits == 0x7bff);
  static_assert(Float16(0x1p-24F).bits == 0x0001);
  static_assert(BFloat16(1.0F).bits == 0x3f80);
  static_assert(BFloat16(quiet_nan).bits == 0x7fc0);
  static_assert(Float8E4M3(448.0F).bits == 0x7e);
  static_assert(Float8E4M3(480.0F).bits == 0x7f);
  static_assert(Float8E5M2(57344.0F).bits == 0x7b);
  static_assert(Float8E5M2(infinity).bits == 0x7c);
  static_assert(static_cast<float>(Float8E4M3(0.0175F)) == 0.017578125F);
  static_assert(Float16().bits == 0 && sizeof(Float16) == 2 && sizeof(Float8E5M2) == 1);
  SUCCEED();
}

}  // namespace
}  // namespace tutti
