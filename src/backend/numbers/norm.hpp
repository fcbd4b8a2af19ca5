// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/numbers/arithmetic.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Defines norms, the same source for CPU and GPU so that results agree bit for bit.
///
/// A piece is cut into tiles of `norm_tile_bytes`. Element i of a tile is squared in float64 and added to sum
/// i modulo `norm_lanes` of the tile, in ascending order; then the upper half of the sums is added to the
/// lower half until one is left. A list of sums is added up in the same way, by `norm_threads` sums.
namespace tutti::backend {

inline constexpr std::size_t norm_tile_bytes = std::size_t{1} << 16U;
inline constexpr unsigned norm_threads = 256;

/// Elements of type T that a thread of a GPU loads at once, and so the sums that it holds.
template <class T>
inline constexpr unsigned norm_width = 16 / sizeof(T);
template <class T>
inline constexpr unsigned norm_lanes = norm_threads * norm_width<T>;

/// Returns the elements of a tile.
[[nodiscard]] constexpr std::uint64_t norm_tile_elements(DType dtype) noexcept {
  return norm_tile_bytes / size_of(dtype);
}
/// Returns the number of tiles of a piece of `count` elements.
[[nodiscard]] constexpr std::uint64_t norm_tiles(DType dtype, std::uint64_t count) noexcept {
  return (count + norm_tile_elements(dtype) - 1) / norm_tile_elements(dtype);
}

/// Says that T is a real floating-point type of elements.
template <class T>
inline constexpr bool is_real = !std::is_integral_v<T> && !is_complex_element<T>;

/// Calls `visitor.operator()<T>()` with the real floating-point type; returns `other` for all other types.
template <class Result, class Visitor>
Result visit_real(DType dtype, Result other, Visitor&& visitor) {
  return visit_dtype(dtype, [&]<class T>() -> Result {
    if constexpr (is_real<T>) {
      return visitor.template operator()<T>();
    } else {
      return other;
    }
  });
}

/// Returns the square of an element, exactly unless T is double.
template <class T>
[[nodiscard]] TUTTI_HOST_DEVICE inline double square(typename SumOf<T>::Storage element) noexcept {
  const auto value = static_cast<double>(SumOf<T>::load(element));
  return value * value;
}

template <class T>
[[nodiscard]] TUTTI_HOST_DEVICE inline typename SumOf<T>::Storage scaled(typename SumOf<T>::Storage element,
                                                                         double factor) noexcept {
  using Accumulator = typename SumOf<T>::Accumulator;
  return SumOf<T>::store(SumOf<T>::load(element) * static_cast<Accumulator>(factor));
}

/// Returns the factor for a vector of norm `norm` that is to have at most `max_norm`: at most 1, and NaN if
/// the norm is; if the norm is infinite, 0.
[[nodiscard]] TUTTI_HOST_DEVICE inline double clip_factor(double norm, double max_norm) noexcept {
  constexpr double least_norm = 1e-6;  // what torch.nn.utils.clip_grad_norm_ adds, too
  const double factor = max_norm / (norm + least_norm);
  return factor >= 1 ? 1.0 : canonical(factor);
}

}  // namespace tutti::backend
