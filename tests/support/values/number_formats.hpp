// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::test {

/// A binary floating-point format; for complex types, that of a component. All zero for integers and bool.
struct NumberFormat {
  unsigned exponent_bits = 0;
  unsigned mantissa_bits = 0;
  bool has_infinity = true;

  [[nodiscard]] constexpr bool is_floating() const noexcept { return exponent_bits != 0; }
  [[nodiscard]] constexpr std::size_t bytes() const noexcept {
    return (1 + exponent_bits + mantissa_bits) / 8;
  }
  [[nodiscard]] constexpr std::uint64_t bias() const noexcept {
    return (std::uint64_t{1} << (exponent_bits - 1)) - 1;
  }
};

[[nodiscard]] constexpr NumberFormat format_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
      return {5, 10, true};
    case DType::bfloat16:
      return {8, 7, true};
    case DType::float32:
    case DType::complex64:
      return {8, 23, true};
    case DType::float64:
    case DType::complex128:
      return {11, 52, true};
    case DType::float8_e4m3:
      return {4, 3, false};
    case DType::float8_e5m2:
      return {5, 2, true};
    default:
      return {};
  }
}

}  // namespace tutti::test
