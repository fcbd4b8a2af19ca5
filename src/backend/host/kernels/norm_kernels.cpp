// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/norm_kernels.hpp"

#include "backend/numbers/norm.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace tutti::backend::host {
namespace {

/// Adds the upper half to the lower one until one sum is left.
template <std::size_t Count>
double halve(std::array<double, Count>& sums) {
  for (std::size_t half = Count / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return canonical(sums[0]);
}

template <class T>
double square_sum(const std::byte* elements, std::uint64_t count) {
  using Storage = typename SumOf<T>::Storage;
  std::array<double, norm_lanes<T>> sums{};
  for (std::uint64_t begin = 0; begin < count; begin += sums.size()) {
    const std::size_t row = std::min<std::uint64_t>(sums.size(), count - begin);
    for (std::size_t i = 0; i < row; ++i) {
      Storage element;
      std::memcpy(&element, elements + (begin + i) * sizeof(T), sizeof(T));
      sums[i] += square<T>(element);
    }
  }
  return halve(sums);
}

template <class T>
void square_sums(const std::byte* elements, std::uint64_t count, double* sums) {
  constexpr std::uint64_t tile = norm_tile_bytes / sizeof(T);
  for (std::uint64_t begin = 0; begin < count; begin += tile)
    *sums++ = square_sum<T>(elements + begin * sizeof(T), std::min(tile, count - begin));
}

template <class T>
void scale(std::byte* elements, std::uint64_t count, double factor) {
  typename SumOf<T>::Storage element;
  for (std::uint64_t i = 0; i < count; ++i, elements += sizeof(T)) {
    std::memcpy(&element, elements, sizeof(T));
    element = scaled<T>(element, factor);
    std::memcpy(elements, &element, sizeof(T));
  }
}

}  // namespace

void square_sums_of_piece(DType dtype, const std::byte* elements, std::uint64_t count, double* sums) {
  visit_real(dtype, 0, [&]<class T>() { return square_sums<T>(elements, count, sums), 0; });
}

double total_of(std::span<const double> sums) {
  std::array<double, norm_threads> lanes{};
  for (std::size_t i = 0; i < sums.size(); ++i) lanes[i % lanes.size()] += sums[i];
  return halve(lanes);
}

void scale_piece(DType dtype, std::byte* elements, std::uint64_t count, double factor) {
  visit_real(dtype, 0, [&]<class T>() { return scale<T>(elements, count, factor), 0; });
}

}  // namespace tutti::backend::host
