// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/float_types.hpp"

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace tutti {

/// Element types. Values are stable; they appear in files.
enum class DType : std::uint8_t {
  float16 = 0,
  bfloat16 = 1,
  float32 = 2,
  float64 = 3,
  int8 = 4,
  uint8 = 5,
  int16 = 6,
  int32 = 7,
  int64 = 8,
  boolean = 9,
  complex64 = 10,
  complex128 = 11,
  float8_e4m3 = 12,  ///< 4 exponent bits, 3 mantissa bits, finite only (no infinities; NaN is 0x7f or 0xff)
  float8_e5m2 = 13,  ///< 5 exponent bits, 2 mantissa bits, IEEE-like
  uint16 = 14,
  uint32 = 15,
  uint64 = 16,
};

inline constexpr std::array all_dtypes{
    DType::float16,   DType::bfloat16,   DType::float32,     DType::float64,     DType::int8,
    DType::uint8,     DType::int16,      DType::int32,       DType::int64,       DType::boolean,
    DType::complex64, DType::complex128, DType::float8_e4m3, DType::float8_e5m2, DType::uint16,
    DType::uint32,    DType::uint64,
};

/// Returns the bytes per element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  constexpr std::array<std::uint8_t, all_dtypes.size()> sizes{2, 2, 4,  8, 1, 1, 2, 4, 8,
                                                              1, 8, 16, 1, 1, 2, 4, 8};
  return sizes[static_cast<std::size_t>(dtype)];
}

/// Returns the type's name as PyTorch spells it, without the module: "float32", "bool", "float8_e4m3", …
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(DType dtype) noexcept;

/// Parses a name as `name_of` returns it; also accepts the short forms f16, bf16, f32, f64, i8, u8, i16, u16,
/// i32, u32, i64, u64, c64, c128, e4m3, e5m2, and "half", "float", "double", "int8" … as nccl-tests spells
/// them. Throws Error(invalid_argument) for any other text.
[[nodiscard]] TUTTI_EXPORT DType parse_dtype(std::string_view text);

namespace detail {

/// Says that T is the one of `long` and `long long`, signed or not, that is no fixed-width type's name.
template <class T>
inline constexpr bool is_other_word = std::is_same_v<T, long> || std::is_same_v<T, unsigned long> ||
                                      std::is_same_v<T, long long> || std::is_same_v<T, unsigned long long>;

}  // namespace detail

/// Gives the `DType` of a C++ type: `dtype_of<float>` is `DType::float32`. Undefined for other types.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(detail::is_other_word<T> && sizeof(T) == 8, "not an element type of tutti");
  return std::is_signed_v<T> ? DType::int64 : DType::uint64;
}();
template <>
inline constexpr DType dtype_of<Float16> = DType::float16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::bfloat16;
template <>
inline constexpr DType dtype_of<float> = DType::float32;
template <>
inline constexpr DType dtype_of<double> = DType::float64;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::int8;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::int16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;
template <>
inline constexpr DType dtype_of<std::complex<float>> = DType::complex64;
template <>
inline constexpr DType dtype_of<std::complex<double>> = DType::complex128;
template <>
inline constexpr DType dtype_of<Float8E4M3> = DType::float8_e4m3;
template <>
inline constexpr DType dtype_of<Float8E5M2> = DType::float8_e5m2;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::uint16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::uint32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::uint64;

/// Calls `visitor.template operator()<T>()` with the C++ type behind `dtype` and returns its result.
template <class Visitor>
decltype(auto) visit_dtype(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::float16:
      return visitor.template operator()<Float16>();
    case DType::bfloat16:
      return visitor.template operator()<BFloat16>();
    case DType::float32:
      return visitor.template operator()<float>();
    case DType::float64:
      return visitor.template operator()<double>();
    case DType::int8:
      return visitor.template operator()<std::int8_t>();
    case DType::uint8:
      return visitor.template operator()<std::uint8_t>();
    case DType::int16:
      return visitor.template operator()<std::int16_t>();
    case DType::int32:
      return visitor.template operator()<std::int32_t>();
    case DType::int64:
      return visitor.template operator()<std::int64_t>();
    case DType::boolean:
      return visitor.template operator()<bool>();
    case DType::complex64:
      return visitor.template operator()<std::complex<float>>();
    case DType::complex128:
      return visitor.template operator()<std::complex<double>>();
    case DType::float8_e4m3:
      return visitor.template operator()<Float8E4M3>();
    case DType::uint16:
      return visitor.template operator()<std::uint16_t>();
    case DType::uint32:
      return visitor.template operator()<std::uint32_t>();
    case DType::uint64:
      return visitor.template operator()<std::uint64_t>();
    case DType::float8_e5m2:
      break;
  }
  return visitor.template operator()<Float8E5M2>();
}

}  // namespace tutti
