// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/numbers/arithmetic.hpp"
#include "backend/operations.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Random numbers, the same source for CPU and GPU: integer arithmetic and correctly rounded operations only,
/// so that results agree bit for bit. Compile without contraction (`-ffp-contract=off`, `-fmad=false`).
///
/// The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
/// SC 2011). Seed s is the key; block b is the output for counter b: four 32-bit words, words 4b to 4b+3 of
/// the seed's stream. This is cuRAND's stream of `curand_init(s, 0, offset, …)`, which starts at word
/// `offset`.
///
/// A fill with offset o (a multiple of 4) takes words from o on, and its elements depend on their index
/// alone, never on how the work was split:
///
/// | type              | words of element i | elements of block o/4 + k |
/// |-------------------|--------------------|---------------------------|
/// | float32           | i                  | 4k … 4k+3                 |
/// | float16, bfloat16 | i                  | 4k … 4k+3                 |
/// | float64           | 2i, 2i+1           | 2k, 2k+1                  |
///
/// Uniform: as many of the leading bits as the type's significand has, times the power of two that makes it
/// [0, 1); no value is rounded. For float64 the second word is the upper half. Normal: Box and Muller.
/// Elements 2j and 2j+1 are the cosine and the sine of the angle that the uniform number of element 2j+1
/// gives, times the radius that that of element 2j gives. The smaller types are rounded from float32.
///
/// Integers take two words each, the second as the upper half, which as a fraction of 2^64 say how far into
/// the range they are; 1 and 0 take one word each, and are 1 if that is less than the probability times 2^32.
namespace tutti::backend {

/// Four words of output, or a counter.
struct PhiloxWords {
  std::uint32_t word[4];
};

/// Computes the Philox4x32-10 bijection.
[[nodiscard]] TUTTI_HOST_DEVICE inline PhiloxWords philox4x32_10(PhiloxWords counter, std::uint32_t key0,
                                                                 std::uint32_t key1) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t product1 = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(product1 >> 32U) ^ counter.word[1] ^ key0,
                static_cast<std::uint32_t>(product1),
                static_cast<std::uint32_t>(product0 >> 32U) ^ counter.word[3] ^ key1,
                static_cast<std::uint32_t>(product0)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

/// Returns words 4 * block to 4 * block + 3 of a subsequence of the stream of `seed`; fills use the first
/// one.
[[nodiscard]] TUTTI_HOST_DEVICE inline PhiloxWords philox_block(std::uint64_t seed, std::uint64_t block,
                                                                std::uint64_t subsequence = 0) noexcept {
  return philox4x32_10(
      {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U),
        static_cast<std::uint32_t>(subsequence), static_cast<std::uint32_t>(subsequence >> 32U)}},
      static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U));
}

/// The number of elements of type T in one block.
template <class T>
inline constexpr int random_elements_per_block = std::is_same_v<T, double> ? 2 : 4;

/// The number of elements of one block in a fill of this distribution.
template <class T, Distribution Kind>
inline constexpr int random_elements = Kind == Distribution::integers    ? 2
                                       : Kind == Distribution::bernoulli ? 4
                                                                         : random_elements_per_block<T>;

/// Returns how far a fill of `count` elements advances the offset: the words it takes, rounded up to a
/// multiple of 4.
[[nodiscard]] constexpr std::uint64_t random_offset_advance(Distribution distribution, DType dtype,
                                                            std::uint64_t count) noexcept {
  const bool takes_two = distribution == Distribution::integers ||
                         (dtype == DType::float64 && distribution != Distribution::bernoulli);
  const std::uint64_t per_block = takes_two ? 2 : 4;
  return (count / per_block + (count % per_block != 0 ? 1 : 0)) * 4;
}

/// Returns the same for floating-point elements, uniform or normal.
[[nodiscard]] constexpr std::uint64_t random_offset_advance(DType dtype, std::uint64_t count) noexcept {
  return random_offset_advance(Distribution::uniform, dtype, count);
}

namespace detail {

/// Returns the natural logarithm of a positive normal number, to about one unit in the last place.
///
/// x = 2^e * m with m near 1, and log m = 2 artanh(s), s = (m - 1) / (m + 1), by its power series.
[[nodiscard]] TUTTI_HOST_DEVICE inline float natural_log(float x) noexcept {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  int exponent = static_cast<int>(bits >> 23U) - 127;
  bits = (bits & 0x7fffffU) | 0x3f800000U;
  if (bits > 0x3fb504f3U) {  // sqrt(2)
    bits -= 0x800000U;
    ++exponent;
  }
  const float f = std::bit_cast<float>(bits) - 1.0F;
  const float s = f / (2.0F + f);
  const float z = s * s;
  const float series = z * (2.0F / 3.0F + z * (2.0F / 5.0F + z * (2.0F / 7.0F + z * (2.0F / 9.0F))));
  const auto e = static_cast<float>(exponent);
  constexpr float ln2_high = 0x1.62e4p-1F;  // few enough bits for an exact product with any exponent
  constexpr float ln2_low = 0x1.7f7d1cp-20F;
  // 2s = f - s * f, which keeps the leading term exact.
  return e * ln2_high + (f - (s * (f - series) - e * ln2_low));
}

[[nodiscard]] TUTTI_HOST_DEVICE inline double natural_log(double x) noexcept {
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52U) - 1023;
  bits = (bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL;
  if (bits > 0x3ff6a09e667f3bcdULL) {  // sqrt(2)
    bits -= 0x10000000000000ULL;
    ++exponent;
  }
  const double f = std::bit_cast<double>(bits) - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 2.0 / 23.0;
  for (int n = 21; n >= 3; n -= 2) series = series * z + 2.0 / n;
  series *= z;
  const auto e = static_cast<double>(exponent);
  constexpr double ln2_high = 0x1.62e42feep-1;
  constexpr double ln2_low = 0x1.a39ef35793c76p-33;
  return e * ln2_high + (f - (s * (f - series) - e * ln2_low));
}

/// Cosine and sine.
template <class Real>
struct Direction {
  Real cosine;
  Real sine;
};

/// Turns the direction of an angle within a quarter turn around 0 by `quarter` quarter turns.
template <class Real>
[[nodiscard]] TUTTI_HOST_DEVICE inline Direction<Real> turn(Direction<Real> d, unsigned quarter) noexcept {
  switch (quarter & 3U) {
    case 0:
      return d;
    case 1:
      return {-d.sine, d.cosine};
    case 2:
      return {-d.cosine, -d.sine};
    default:
      return {d.sine, -d.cosine};
  }
}

/// Returns the direction at `turn32` / 2^32 of a full turn. The reduction to an eighth of a turn is exact, in
/// integers; there the power series converge fast.
[[nodiscard]] TUTTI_HOST_DEVICE inline Direction<float> direction(std::uint32_t turn32) noexcept {
  const std::uint32_t quarter = (turn32 + 0x20000000U) >> 30U;
  const auto rest = static_cast<std::int32_t>(turn32 - (quarter << 30U));
  const float a = static_cast<float>(rest) * 0x1.921fb6p-30F;  // 2 pi / 2^32
  const float z = a * a;
  const float sine =
      a + a * (z * (-1.0F / 6.0F + z * (1.0F / 120.0F + z * (-1.0F / 5040.0F + z * (1.0F / 362880.0F)))));
  const float cosine =
      1.0F -
      z * (0.5F - z * (1.0F / 24.0F - z * (1.0F / 720.0F - z * (1.0F / 40320.0F - z * (1.0F / 3628800.0F)))));
  return turn(Direction<float>{cosine, sine}, quarter);
}

[[nodiscard]] TUTTI_HOST_DEVICE inline Direction<double> direction(std::uint64_t turn64) noexcept {
  const std::uint64_t quarter = (turn64 + 0x2000000000000000ULL) >> 62U;
  const auto rest = static_cast<std::int64_t>(turn64 - (quarter << 62U));
  const double a = static_cast<double>(rest) * 0x1.921fb54442d18p-62;  // 2 pi / 2^64
  const double z = a * a;
  double sine = 1.0;
  for (int n = 18; n >= 2; n -= 2) sine = 1.0 - sine * (z * (1.0 / (n * (n + 1))));
  double cosine = 1.0;
  for (int n = 19; n >= 1; n -= 2) cosine = 1.0 - cosine * (z * (1.0 / (n * (n + 1))));
  return turn(Direction<double>{cosine, a * sine}, static_cast<unsigned>(quarter));
}

/// Bits of the significand, including the implicit one.
template <class T>
inline constexpr unsigned significand_bits = 24;
template <>
inline constexpr unsigned significand_bits<Float16> = 11;
template <>
inline constexpr unsigned significand_bits<BFloat16> = 8;

/// The type in which a distribution is computed: float64 for itself, float32 for the others.
template <class T>
using RandomReal = std::conditional_t<std::is_same_v<T, double>, double, float>;

[[nodiscard]] TUTTI_HOST_DEVICE inline std::uint64_t join_words(std::uint32_t low,
                                                                std::uint32_t high) noexcept {
  return std::uint64_t{high} << 32U | low;
}

/// Returns an element in [0, 1), exact in T.
template <class T>
[[nodiscard]] TUTTI_HOST_DEVICE inline RandomReal<T> uniform_element(const PhiloxWords& words,
                                                                     int i) noexcept {
  if constexpr (std::is_same_v<T, double>) {
    return static_cast<double>(join_words(words.word[2 * i], words.word[2 * i + 1]) >> 11U) * 0x1p-53;
  } else {
    constexpr unsigned bits = significand_bits<T>;
    constexpr float unit = 1.0F / static_cast<float>(1U << bits);
    return static_cast<float>(words.word[i] >> (32U - bits)) * unit;
  }
}

/// Returns standard normal elements `first` and `first + 1` of a block.
[[nodiscard]] TUTTI_HOST_DEVICE inline Direction<float> normal_pair(std::uint32_t for_radius,
                                                                    std::uint32_t for_angle) noexcept {
  const float u = static_cast<float>(for_radius) * 0x1p-32F + 0x1p-33F;  // in (0, 1]
  const float radius = std::sqrt(-2.0F * natural_log(u));
  const Direction<float> d = direction(for_angle);
  return {radius * d.cosine, radius * d.sine};
}

[[nodiscard]] TUTTI_HOST_DEVICE inline Direction<double> normal_pair(std::uint64_t for_radius,
                                                                     std::uint64_t for_angle) noexcept {
  const double u = static_cast<double>(for_radius) * 0x1p-64 + 0x1p-65;  // in (0, 1]
  const double radius = std::sqrt(-2.0 * natural_log(u));
  const Direction<double> d = direction(for_angle);
  return {radius * d.cosine, radius * d.sine};
}

}  // namespace detail

/// Computes the elements of one block, uniform in [low, high). If rounding would give `high`, the value is
/// `low`.
template <class T>
TUTTI_HOST_DEVICE inline void uniform_block(std::uint64_t seed, std::uint64_t block, double low, double high,
                                            T (&elements)[random_elements_per_block<T>]) noexcept {
  using Real = detail::RandomReal<T>;
  const T least(static_cast<Real>(low));
  const T beyond(static_cast<Real>(high));
  const Real start = static_cast<Real>(least);
  const Real width = static_cast<Real>(beyond) - start;
  const PhiloxWords words = philox_block(seed, block);
  for (int i = 0; i < random_elements_per_block<T>; ++i) {
    const T value(start + detail::uniform_element<T>(words, i) * width);
    elements[i] = static_cast<Real>(value) < static_cast<Real>(beyond) ? value : least;
  }
}

/// Computes the elements of one block, normal with `mean` and `standard_deviation`.
template <class T>
TUTTI_HOST_DEVICE inline void normal_block(std::uint64_t seed, std::uint64_t block, double mean,
                                           double standard_deviation,
                                           T (&elements)[random_elements_per_block<T>]) noexcept {
  using Real = detail::RandomReal<T>;
  const PhiloxWords words = philox_block(seed, block);
  for (int i = 0; i < random_elements_per_block<T>; i += 2) {
    detail::Direction<Real> pair;
    if constexpr (std::is_same_v<T, double>) {
      pair = detail::normal_pair(detail::join_words(words.word[0], words.word[1]),
                                 detail::join_words(words.word[2], words.word[3]));
    } else {
      pair = detail::normal_pair(words.word[i], words.word[i + 1]);
    }
    elements[i] = T(static_cast<Real>(mean) + static_cast<Real>(standard_deviation) * pair.cosine);
    elements[i + 1] = T(static_cast<Real>(mean) + static_cast<Real>(standard_deviation) * pair.sine);
  }
}

namespace detail {

/// Returns the upper half of the product.
[[nodiscard]] TUTTI_HOST_DEVICE inline std::uint64_t high_product(std::uint64_t a, std::uint64_t b) noexcept {
  const std::uint64_t a_low = a & 0xffffffffU;
  const std::uint64_t a_high = a >> 32U;
  const std::uint64_t b_low = b & 0xffffffffU;
  const std::uint64_t b_high = b >> 32U;
  const std::uint64_t middle = a_high * b_low + ((a_low * b_low) >> 32U);
  return a_high * b_high + (middle >> 32U) + ((a_low * b_high + (middle & 0xffffffffU)) >> 32U);
}

}  // namespace detail

/// Computes the elements of one block: `low` and up to `range` - 1 more. T is the unsigned type of their
/// size.
template <class T>
TUTTI_HOST_DEVICE inline void integer_block(std::uint64_t seed, std::uint64_t block, std::int64_t low,
                                            std::uint64_t range, T (&elements)[2]) noexcept {
  const PhiloxWords words = philox_block(seed, block);
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t fraction = detail::join_words(words.word[2 * i], words.word[2 * i + 1]);
    elements[i] = static_cast<T>(static_cast<std::uint64_t>(low) + detail::high_product(fraction, range));
  }
}

/// Computes the elements of one block: `one` where the word is less than `range`, else 0. T is the unsigned
/// type of their size.
template <class T>
TUTTI_HOST_DEVICE inline void bernoulli_block(std::uint64_t seed, std::uint64_t block, std::uint64_t range,
                                              T one, T (&elements)[4]) noexcept {
  const PhiloxWords words = philox_block(seed, block);
  for (int i = 0; i < 4; ++i) elements[i] = words.word[i] < range ? one : T{0};
}

/// Returns the bits of 1 as an element of `dtype`, which has at most 8 bytes.
[[nodiscard]] constexpr std::uint64_t bits_of_one(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return 0x3c00;
    case DType::bfloat16:
      return 0x3f80;
    case DType::float32:
    case DType::complex64:
      return 0x3f800000;
    case DType::float64:
      return 0x3ff0000000000000;
    case DType::float8_e4m3:
      return 0x38;
    case DType::float8_e5m2:
      return 0x3c;
    default:
      return 1;
  }
}

}  // namespace tutti::backend
