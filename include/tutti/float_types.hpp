#pragma once

#include <bit>
#include <cstdint>

/// Lets the same conversion compile for the host and, under nvcc, for the device.
#if defined(__CUDACC__)
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif

namespace tutti {

namespace detail {

/// Rounds `value` to a small binary float of `ExponentBits` and `MantissaBits`, to nearest, ties to even.
/// Overflow gives infinity, or NaN where the format has no infinity (`FiniteOnly`). A NaN, be it given or the result of
/// an overflow, is the format's canonical quiet NaN with the sign cleared.
template <int ExponentBits, int MantissaBits, bool FiniteOnly>
TUTTI_HOST_DEVICE constexpr std::uint32_t narrow_float(float value) noexcept {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr std::uint32_t magnitude_bits = ExponentBits + MantissaBits;
  constexpr std::uint32_t infinity = ((1U << ExponentBits) - 1U) << MantissaBits;
  constexpr std::uint32_t nan = FiniteOnly ? (1U << magnitude_bits) - 1U : infinity | (1U << (MantissaBits - 1));
  // The largest finite magnitude: in a finite-only format only the all-ones pattern is taken (by NaN).
  constexpr std::uint32_t largest = FiniteOnly ? nan - 1U : infinity - 1U;

  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31U) << magnitude_bits;
  const std::uint32_t overflow = FiniteOnly ? nan : sign | infinity;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return nan;
  if (magnitude == 0x7f800000U) return overflow;

  const bool normal = magnitude >= 0x800000U;
  const int exponent = (normal ? static_cast<int>(magnitude >> 23U) : 1) - 127;
  const std::uint32_t significand = (magnitude & 0x7fffffU) | (normal ? 0x800000U : 0U);
  // Subnormal results drop more bits; the exponent of their unit in the last place is fixed.
  const int shift = 23 - MantissaBits + (exponent < 1 - bias ? 1 - bias - exponent : 0);
  if (shift > 25) return sign;  // below half of the smallest subnormal
  const std::uint32_t kept = significand >> static_cast<unsigned>(shift);
  const std::uint32_t dropped = significand & ((1U << static_cast<unsigned>(shift)) - 1U);
  const std::uint32_t half = 1U << static_cast<unsigned>(shift - 1);
  const std::uint32_t rounded = kept + ((dropped > half || (dropped == half && (kept & 1U) != 0U)) ? 1U : 0U);
  // `rounded` carries the implicit bit for normal results; adding (not or-ing) the exponent lets a carry ripple up.
  const std::uint32_t result =
      exponent < 1 - bias ? rounded
                          : rounded + (static_cast<std::uint32_t>(exponent + bias - 1) << MantissaBits);
  return result > largest ? overflow : sign | result;
}

/// The float32 value of a small binary float; exact. NaN becomes the canonical quiet NaN.
template <int ExponentBits, int MantissaBits, bool FiniteOnly>
TUTTI_HOST_DEVICE constexpr float widen_float(std::uint32_t bits) noexcept {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr std::uint32_t magnitude_bits = ExponentBits + MantissaBits;
  constexpr std::uint32_t exponent_ones = (1U << ExponentBits) - 1U;
  const std::uint32_t sign = ((bits >> magnitude_bits) & 1U) << 31U;
  const std::uint32_t exponent = (bits >> MantissaBits) & exponent_ones;
  const std::uint32_t mantissa = bits & ((1U << MantissaBits) - 1U);
  if constexpr (FiniteOnly) {
    if (exponent == exponent_ones && mantissa == (1U << MantissaBits) - 1U) return std::bit_cast<float>(0x7fffffffU);
  } else {
    if (exponent == exponent_ones) {
      return std::bit_cast<float>(mantissa != 0U ? 0x7fffffffU : sign | 0x7f800000U);
    }
  }
  if (exponent == 0U) {
    // mantissa * 2^(1 - bias - MantissaBits): both factors and the product are exact in float32.
    constexpr auto unit = static_cast<std::uint32_t>(127 + 1 - bias - MantissaBits) << 23U;
    const float magnitude = static_cast<float>(mantissa) * std::bit_cast<float>(unit);
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 127U - bias) << 23U | mantissa << (23U - MantissaBits));
}

}  // namespace detail

/// IEEE binary16. Storage only: convert to float to compute. Conversions round to nearest, ties to even.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::narrow_float<5, 10, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept { return detail::widen_float<5, 10, false>(bits); }
  friend constexpr bool operator==(Float16, Float16) = default;  ///< compares bits, not values
};

/// The upper half of an IEEE binary32.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  TUTTI_HOST_DEVICE constexpr explicit BFloat16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::narrow_float<8, 7, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  friend constexpr bool operator==(BFloat16, BFloat16) = default;  ///< compares bits, not values
};

/// OCP FP8 E4M3: no infinities; overflow becomes NaN.
struct Float8E4M3 {
  std::uint8_t bits = 0;

  Float8E4M3() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float8E4M3(float value) noexcept
      : bits(static_cast<std::uint8_t>(detail::narrow_float<4, 3, true>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept { return detail::widen_float<4, 3, true>(bits); }
  friend constexpr bool operator==(Float8E4M3, Float8E4M3) = default;  ///< compares bits, not values
};

/// OCP FP8 E5M2: IEEE-like, with infinities.
struct Float8E5M2 {
  std::uint8_t bits = 0;

  Float8E5M2() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float8E5M2(float value) noexcept
      : bits(static_cast<std::uint8_t>(detail::narrow_float<5, 2, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept { return detail::widen_float<5, 2, false>(bits); }
  friend constexpr bool operator==(Float8E5M2, Float8E5M2) = default;  ///< compares bits, not values
};

}  // namespace tutti
