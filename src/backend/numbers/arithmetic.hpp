// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

/// Defines the arithmetic of sums, the same source for CPU and GPU so that results agree bit for bit.
///
/// Accumulator types: float16, bfloat16 and the float8 formats add in float32 and round once, at the end;
/// float32, float64 and the complex types add in themselves, componentwise; integers wrap around modulo
/// 2^bits; bool is logical or. Inputs are added in ascending order, starting from the first. A NaN result is
/// the canonical quiet NaN (sign 0, all mantissa bits 1 in float32 and float64), because processors disagree
/// on which payload survives an addition.
namespace tutti::backend {

template <class T>
inline constexpr bool is_complex_element = false;
template <class Real>
inline constexpr bool is_complex_element<std::complex<Real>> = true;

/// Two components added independently; `std::complex` is not usable in device code.
template <class Real>
struct ComplexSum {
  Real real;
  Real imaginary;
};

[[nodiscard]] TUTTI_HOST_DEVICE inline float canonical(float value) noexcept {
  return value == value ? value : std::bit_cast<float>(0x7fffffffU);
}
[[nodiscard]] TUTTI_HOST_DEVICE inline double canonical(double value) noexcept {
  return value == value ? value : std::bit_cast<double>(0x7fffffffffffffffULL);
}

/// Sums elements of storage type T. `Storage` is what kernels load and store (bit-compatible with T).
template <class T>
struct SumOf {  // integers
  using Storage = T;
  using Accumulator = std::make_unsigned_t<T>;
  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept {
    return static_cast<Accumulator>(value);
  }
  static TUTTI_HOST_DEVICE Accumulator add(Accumulator a, Storage b) noexcept {
    return static_cast<Accumulator>(a + static_cast<Accumulator>(b));
  }
  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept { return static_cast<Storage>(value); }
};

template <>
struct SumOf<bool> {
  using Storage = std::uint8_t;  // any non-zero byte is true
  using Accumulator = bool;
  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept { return value != 0; }
  static TUTTI_HOST_DEVICE Accumulator add(Accumulator a, Storage b) noexcept { return a || b != 0; }
  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept { return value ? 1 : 0; }
};

template <class Real>
struct SumOfReal {
  using Storage = Real;
  using Accumulator = Real;
  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept { return value; }
  static TUTTI_HOST_DEVICE Accumulator add(Accumulator a, Storage b) noexcept { return a + b; }
  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept { return canonical(value); }
};
template <>
struct SumOf<float> : SumOfReal<float> {};
template <>
struct SumOf<double> : SumOfReal<double> {};

template <class Real>
struct SumOfComplex {
  using Storage = ComplexSum<Real>;
  using Accumulator = ComplexSum<Real>;
  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept { return value; }
  static TUTTI_HOST_DEVICE Accumulator add(Accumulator a, Storage b) noexcept {
    return {a.real + b.real, a.imaginary + b.imaginary};
  }
  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept {
    return {canonical(value.real), canonical(value.imaginary)};
  }
};
template <>
struct SumOf<std::complex<float>> : SumOfComplex<float> {};
template <>
struct SumOf<std::complex<double>> : SumOfComplex<double> {};

template <class Small>
struct SumOfSmallFloat {
  using Storage = Small;
  using Accumulator = float;
  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept { return static_cast<float>(value); }
  static TUTTI_HOST_DEVICE Accumulator add(Accumulator a, Storage b) noexcept {
    return a + static_cast<float>(b);
  }
  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept { return Small(canonical(value)); }
};
template <>
struct SumOf<Float16> : SumOfSmallFloat<Float16> {};
template <>
struct SumOf<BFloat16> : SumOfSmallFloat<BFloat16> {};
template <>
struct SumOf<Float8E4M3> : SumOfSmallFloat<Float8E4M3> {};
template <>
struct SumOf<Float8E5M2> : SumOfSmallFloat<Float8E5M2> {};

}  // namespace tutti::backend
