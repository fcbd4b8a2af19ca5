// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/numbers/arithmetic.hpp"

#include <cstdint>
#include <limits>
#include <type_traits>

/// Converts values from one element type to another, the same source for CPU and GPU so that results agree
/// bit for bit.
///
///  - The same type: the bytes move, NaN payloads and odd bools included.
///  - To bool: true if the value is different from zero; for complex, if either part is. NaN is.
///  - Integer or bool to integer: modulo 2^bits. Bool counts as 0 or 1.
///  - Floating point to integer: truncated towards zero, saturated at the ends of the range; NaN becomes 0.
///  - To float32 and float64: rounded to nearest, ties to even. To the smaller formats: the same, by way of
///    float32, so that float64 and integers are rounded twice.
///  - Complex to real: the imaginary part is dropped. Real to complex: the imaginary part is 0.
///  - A NaN becomes the canonical quiet NaN of its new type (see `arithmetic.hpp`).
namespace tutti::backend {

namespace detail {

template <class T>
inline constexpr bool is_small_float = std::is_base_of_v<SumOfSmallFloat<T>, SumOf<T>>;

/// Returns a number in the simplest type that holds every value of `From`: std::int64_t, std::uint64_t, float
/// or double.
template <class From>
[[nodiscard]] TUTTI_HOST_DEVICE inline auto widen(typename SumOf<From>::Storage value) noexcept {
  if constexpr (std::is_same_v<From, bool>) {
    return std::int64_t{value != 0};
  } else if constexpr (std::is_integral_v<From> && !std::is_same_v<From, std::uint64_t>) {
    return static_cast<std::int64_t>(value);
  } else if constexpr (is_complex_element<From>) {
    return value.real;
  } else if constexpr (is_small_float<From>) {
    return static_cast<float>(value);
  } else {
    return value;
  }
}

template <class Integer, class Real>
[[nodiscard]] TUTTI_HOST_DEVICE inline Integer truncate(Real value) noexcept {
  constexpr Integer greatest = std::numeric_limits<Integer>::max();
  constexpr Integer least = std::numeric_limits<Integer>::min();
  // One above the greatest integer is a power of two and exact in floating point; the greatest itself may not
  // be.
  constexpr Real beyond = static_cast<Real>(greatest / 2 + 1) * 2;
  if (value != value) return 0;
  if (value >= beyond) return greatest;
  if (value <= static_cast<Real>(least)) return least;
  return static_cast<Integer>(value);
}

/// The inverse of `widen`, for real target types.
template <class To, class Wide>
[[nodiscard]] TUTTI_HOST_DEVICE inline typename SumOf<To>::Storage narrow(Wide value) noexcept {
  if constexpr (std::is_same_v<To, bool>) {
    return value != 0 ? 1 : 0;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<Wide>) {
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To>) {
    return truncate<To>(value);
  } else if constexpr (is_small_float<To>) {
    return To(static_cast<float>(value));
  } else {
    return canonical(static_cast<To>(value));
  }
}

}  // namespace detail

/// Converts `value` from `From` to `To`; both are in the storage types of `SumOf`.
template <class To, class From>
[[nodiscard]] TUTTI_HOST_DEVICE inline typename SumOf<To>::Storage convert_value(
    typename SumOf<From>::Storage value) noexcept {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (is_complex_element<To>) {
    using Real = typename To::value_type;
    if constexpr (is_complex_element<From>) {
      return {detail::narrow<Real>(value.real), detail::narrow<Real>(value.imaginary)};
    } else {
      return {detail::narrow<Real>(detail::widen<From>(value)), Real{0}};
    }
  } else if constexpr (std::is_same_v<To, bool> && is_complex_element<From>) {
    return value.real != 0 || value.imaginary != 0 ? 1 : 0;
  } else {
    return detail::narrow<To>(detail::widen<From>(value));
  }
}

}  // namespace tutti::backend
