// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/numbers/arithmetic.hpp"
#include "tutti/reduce_op.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

/// Defines the arithmetic of reductions by any operation, in the types of sums (`arithmetic.hpp`), and like
/// it the same source for CPU and GPU. `ReduceKind` says what each operation does.
namespace tutti::backend {

/// Returns true if elements of type T have the operation.
template <class T>
[[nodiscard]] TUTTI_HOST_DEVICE constexpr bool has_operation(ReduceKind kind) noexcept {
  switch (kind) {
    case ReduceKind::sum:
    case ReduceKind::prod:
      return true;
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return !std::is_same_v<T, bool>;
    case ReduceKind::min:
    case ReduceKind::max:
      return !is_complex_element<T>;
    case ReduceKind::band:
    case ReduceKind::bor:
    case ReduceKind::bxor:
      return std::integral<T>;
    case ReduceKind::compiled:  // compiled operations bring their own arithmetic
      break;
  }
  return false;
}

template <class T>
struct ReductionOf {
  using Storage = typename SumOf<T>::Storage;
  using Accumulator = typename SumOf<T>::Accumulator;

  static TUTTI_HOST_DEVICE Accumulator load(Storage value) noexcept { return SumOf<T>::load(value); }

  static TUTTI_HOST_DEVICE Accumulator times_factor(Accumulator value, double factor) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return value;
    } else if constexpr (is_complex_element<T>) {
      using Real = decltype(value.real);
      return {value.real * static_cast<Real>(factor), value.imaginary * static_cast<Real>(factor)};
    } else if constexpr (std::integral<T>) {
      return product(value, static_cast<Accumulator>(static_cast<std::int64_t>(factor)));
    } else {
      return value * static_cast<Accumulator>(factor);
    }
  }

  /// Combines two elements; T must have the operation.
  template <ReduceKind kind>
  static TUTTI_HOST_DEVICE Accumulator combine(Accumulator a, Accumulator b) noexcept {
    if constexpr (!has_operation<T>(kind)) {
      return a;
    } else if constexpr (kind == ReduceKind::min) {
      return least(a, b);
    } else if constexpr (kind == ReduceKind::max) {
      return greatest(a, b);
    } else if constexpr (kind == ReduceKind::prod) {
      return product(a, b);
    } else if constexpr (kind == ReduceKind::band) {
      return static_cast<Accumulator>(a & b);
    } else if constexpr (kind == ReduceKind::bor) {
      return static_cast<Accumulator>(a | b);
    } else if constexpr (kind == ReduceKind::bxor) {
      return static_cast<Accumulator>(a ^ b);
    } else {
      return plus(a, b);
    }
  }

  static TUTTI_HOST_DEVICE Storage store(Accumulator value) noexcept { return SumOf<T>::store(value); }

  /// Returns a sum of `count` elements divided by `count`.
  static TUTTI_HOST_DEVICE Accumulator mean(Accumulator sum, std::uint32_t count) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return sum;
    } else if constexpr (is_complex_element<T>) {
      using Real = decltype(sum.real);
      return {sum.real / static_cast<Real>(count), sum.imaginary / static_cast<Real>(count)};
    } else if constexpr (std::unsigned_integral<T>) {
      return static_cast<Accumulator>(sum / count);
    } else if constexpr (std::integral<T>) {
      // The type is as wide as both numbers need, and no wider, as GPUs divide 64 bits slowly.
      using Wide = std::conditional_t<sizeof(T) == 8, std::int64_t,
                                      std::conditional_t<sizeof(T) == 4, std::int64_t, std::int32_t>>;
      return static_cast<Accumulator>(static_cast<Wide>(static_cast<T>(sum)) / static_cast<Wide>(count));
    } else {
      return sum / static_cast<Accumulator>(count);
    }
  }

 private:
  static TUTTI_HOST_DEVICE Accumulator plus(Accumulator a, Accumulator b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (is_complex_element<T>) {
      return {a.real + b.real, a.imaginary + b.imaginary};
    } else {
      return static_cast<Accumulator>(a + b);
    }
  }
  static TUTTI_HOST_DEVICE Accumulator product(Accumulator a, Accumulator b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (is_complex_element<T>) {
      return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
    } else if constexpr (sizeof(Accumulator) < sizeof(unsigned) && std::integral<T>) {
      return static_cast<Accumulator>(static_cast<unsigned>(a) * static_cast<unsigned>(b));
    } else {
      return a * b;
    }
  }
  /// Returns the lesser element: -0 is less than +0, and NaN is less than all else. Nothing here branches, so
  /// that loops over it can be vectorised.
  static TUTTI_HOST_DEVICE Accumulator least(Accumulator a, Accumulator b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(a) < static_cast<T>(b) ? a : b;
    } else {
      // If one is NaN, or they are equal, these are b and a; otherwise both are the lesser. So the union of
      // their bits is a NaN, or -0 if one is that, or the lesser in all other cases.
      using Bits = std::conditional_t<sizeof(Accumulator) == 8, std::uint64_t, std::uint32_t>;
      const auto second = std::bit_cast<Bits>(a < b ? a : b);
      const auto first = std::bit_cast<Bits>(b < a ? b : a);
      return std::bit_cast<Accumulator>(first | second);
    }
  }
  /// Returns the greater element, where NaN is greater than all else.
  static TUTTI_HOST_DEVICE Accumulator greatest(Accumulator a, Accumulator b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(b) < static_cast<T>(a) ? a : b;
    } else {
      return -least(-a, -b);
    }
  }
};

/// Calls `visitor.template operator()<kind>()`.
template <class Visitor>
TUTTI_HOST_DEVICE inline decltype(auto) visit_kind(ReduceKind kind, Visitor&& visitor) {
  switch (kind) {
    case ReduceKind::min:
      return visitor.template operator()<ReduceKind::min>();
    case ReduceKind::max:
      return visitor.template operator()<ReduceKind::max>();
    case ReduceKind::prod:
      return visitor.template operator()<ReduceKind::prod>();
    case ReduceKind::band:
      return visitor.template operator()<ReduceKind::band>();
    case ReduceKind::bor:
      return visitor.template operator()<ReduceKind::bor>();
    case ReduceKind::bxor:
      return visitor.template operator()<ReduceKind::bxor>();
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
    case ReduceKind::compiled:
      break;
  }
  return visitor.template operator()<ReduceKind::sum>();
}

}  // namespace tutti::backend
