// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/host_device.hpp"

#include <cstdint>

namespace tutti {

namespace detail {

/// Does what std::bit_cast does, which kernels cannot call unless nvcc is run with --expt-relaxed-constexpr.
template <typename To, typename From>
TUTTI_HOST_DEVICE constexpr To bits_as(From value) noexcept {
  return __builtin_bit_cast(To, value);
}

// Both conversions compute all cases and choose among them at the end, so that compilers can vectorise loops.

/// Rounds `value` to a small binary float of `ExponentBits` and `MantissaBits`, to nearest, ties to even.
/// Overflow gives infinity, or NaN where the format has no infinity (`FiniteOnly`). A NaN, be it given or the
/// result of an overflow, is the format's canonical quiet NaN with the sign cleared.
template <int ExponentBits, int MantissaBits, bool FiniteOnly>
TUTTI_HOST_DEVICE constexpr std::uint32_t narrow_float(float value) noexcept {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr std::uint32_t magnitude_bits = ExponentBits + MantissaBits;
  constexpr std::uint32_t infinity = ((1U << ExponentBits) - 1U) << MantissaBits;
  constexpr std::uint32_t nan =
      FiniteOnly ? (1U << magnitude_bits) - 1U : infinity | (1U << (MantissaBits - 1));
  // The largest finite magnitude: in a finite-only format only the all-ones pattern is taken (by NaN).
  constexpr std::uint32_t largest = FiniteOnly ? nan - 1U : infinity - 1U;
  constexpr auto dropped_bits = static_cast<unsigned>(23 - MantissaBits);

  const auto bits = bits_as<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 31U) << magnitude_bits;
  const std::uint32_t overflow = FiniteOnly ? nan : sign | infinity;
  const std::uint32_t magnitude = bits & 0x7fffffffU;

  // Half a unit, less one if the last bit kept is even; a carry ripples up into the exponent, where it
  // belongs.
  const std::uint32_t rounding = (1U << (dropped_bits - 1U)) - 1U + ((magnitude >> dropped_bits) & 1U);
  std::uint32_t result = (magnitude + rounding) >> dropped_bits;
  if constexpr (ExponentBits < 8) {
    constexpr auto smallest_normal = static_cast<std::uint32_t>(127 + 1 - bias) << 23U;
    // In float32, this number has the same last place as the format's subnormals: adding it rounds to them.
    constexpr auto aligner = static_cast<std::uint32_t>(127 + 1 - bias + static_cast<int>(dropped_bits))
                             << 23U;
    const float small = bits_as<float>(magnitude < smallest_normal ? magnitude : smallest_normal);
    const std::uint32_t subnormal = bits_as<std::uint32_t>(small + bits_as<float>(aligner)) - aligner;
    const std::uint32_t normal = result - (static_cast<std::uint32_t>(127 - bias) << MantissaBits);
    result = magnitude < smallest_normal ? subnormal : normal;
  }
  result = result > largest ? overflow : sign | result;
  return magnitude > 0x7f800000U ? nan : result;
}

/// Returns the float32 value of a small binary float; exact. NaN becomes the canonical quiet NaN.
template <int ExponentBits, int MantissaBits, bool FiniteOnly>
TUTTI_HOST_DEVICE constexpr float widen_float(std::uint32_t bits) noexcept {
  constexpr int bias = (1 << (ExponentBits - 1)) - 1;
  constexpr std::uint32_t magnitude_bits = ExponentBits + MantissaBits;
  constexpr std::uint32_t infinity = ((1U << ExponentBits) - 1U) << MantissaBits;
  constexpr std::uint32_t largest = FiniteOnly ? (1U << magnitude_bits) - 2U : infinity - 1U;
  // mantissa * 2^(1 - bias - MantissaBits): both factors and the product are exact in float32.
  constexpr auto unit = static_cast<std::uint32_t>(127 + 1 - bias - MantissaBits) << 23U;
  constexpr auto rebias = static_cast<std::uint32_t>(127 - bias) << 23U;

  const std::uint32_t sign = ((bits >> magnitude_bits) & 1U) << 31U;
  const std::uint32_t magnitude = bits & ((1U << magnitude_bits) - 1U);
  const float product = static_cast<float>(static_cast<std::int32_t>(magnitude)) * bits_as<float>(unit);
  const auto subnormal = bits_as<std::uint32_t>(product);
  const std::uint32_t normal = (magnitude << (23U - MantissaBits)) + rebias;
  const std::uint32_t finite = sign | (magnitude < (1U << MantissaBits) ? subnormal : normal);
  const std::uint32_t special = !FiniteOnly && magnitude == infinity ? sign | 0x7f800000U : 0x7fffffffU;
  return bits_as<float>(magnitude > largest ? special : finite);
}

}  // namespace detail

/// IEEE binary16. Storage only: convert to float to compute. Conversions round to nearest, ties to even.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::narrow_float<5, 10, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept {
    return detail::widen_float<5, 10, false>(bits);
  }
  friend constexpr bool operator==(Float16, Float16) = default;  ///< compares bits, not values
};

/// The upper half of an IEEE binary32.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  TUTTI_HOST_DEVICE constexpr explicit BFloat16(float value) noexcept
      : bits(static_cast<std::uint16_t>(detail::narrow_float<8, 7, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept {
    return detail::bits_as<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  friend constexpr bool operator==(BFloat16, BFloat16) = default;  ///< compares bits, not values
};

/// OCP FP8 E4M3: no infinities; overflow becomes NaN.
struct Float8E4M3 {
  std::uint8_t bits = 0;

  Float8E4M3() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float8E4M3(float value) noexcept
      : bits(static_cast<std::uint8_t>(detail::narrow_float<4, 3, true>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept {
    return detail::widen_float<4, 3, true>(bits);
  }
  friend constexpr bool operator==(Float8E4M3, Float8E4M3) = default;  ///< compares bits, not values
};

/// OCP FP8 E5M2: IEEE-like, with infinities.
struct Float8E5M2 {
  std::uint8_t bits = 0;

  Float8E5M2() = default;
  TUTTI_HOST_DEVICE constexpr explicit Float8E5M2(float value) noexcept
      : bits(static_cast<std::uint8_t>(detail::narrow_float<5, 2, false>(value))) {}
  TUTTI_HOST_DEVICE constexpr explicit operator float() const noexcept {
    return detail::widen_float<5, 2, false>(bits);
  }
  friend constexpr bool operator==(Float8E5M2, Float8E5M2) = default;  ///< compares bits, not values
};

}  // namespace tutti
