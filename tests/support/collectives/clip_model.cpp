// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/clip_model.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace tutti::test {
namespace {

constexpr std::size_t tile_bytes = 65536;

/// Calls `visit.operator()<T>()` with the real type of the elements' components.
template <class Visit>
auto visit_component(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::float16:
      return visit.template operator()<Float16>();
    case DType::bfloat16:
      return visit.template operator()<BFloat16>();
    case DType::float8_e4m3:
      return visit.template operator()<Float8E4M3>();
    case DType::float8_e5m2:
      return visit.template operator()<Float8E5M2>();
    case DType::float64:
    case DType::complex128:
      return visit.template operator()<double>();
    default:
      return visit.template operator()<float>();
  }
}

template <class T>
T number_at(const HostArray& array, std::size_t index) {
  T number;
  std::memcpy(&number, array.bytes.data() + index * sizeof(T), sizeof(T));
  return number;
}

/// float32 for the small formats, whose arithmetic that is.
template <class T>
auto widened(T number) {
  if constexpr (std::is_same_v<T, double>) {
    return number;
  } else {
    return static_cast<float>(number);
  }
}

/// Adds neighbours at half the distance until one number is left.
double folded(std::vector<double> sums) {
  while (sums.size() > 1) {
    const std::size_t half = sums.size() / 2;
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[half + i];
    sums.resize(half);
  }
  return sums[0];
}

/// One sum for each tile of the array.
std::vector<double> tile_sums(const HostArray& array) {
  return visit_component(array.dtype, [&]<class T>() {
    const std::size_t count = array.bytes.size() / sizeof(T);
    const std::size_t tile = tile_bytes / sizeof(T);
    std::vector<double> result;
    for (std::size_t begin = 0; begin < count; begin += tile) {
      std::vector<double> sums(256 * 16 / sizeof(T), 0.0);
      for (std::size_t i = begin; i < std::min(begin + tile, count); ++i) {
        const auto number = static_cast<double>(widened(number_at<T>(array, i)));
        sums[(i - begin) % sums.size()] += number * number;
      }
      result.push_back(folded(sums));
    }
    return result;
  });
}

double total_of(std::span<const double> sums) {
  std::vector<double> lanes(256, 0.0);
  for (std::size_t i = 0; i < sums.size(); ++i) lanes[i % 256] += sums[i];
  return folded(lanes);
}

double norm_of_sums(const std::vector<double>& member_sums) {
  // One member has the total already.
  return std::sqrt(member_sums.size() == 1 ? member_sums[0] : total_of(member_sums));
}

}  // namespace

double norm_of(std::span<const HostArray> gradients, int members) {
  struct Tile {
    DType component;
    double sum;
  };
  std::vector<Tile> tiles;
  for (const HostArray& gradient : gradients) {
    const DType component = gradient.dtype == DType::complex64    ? DType::float32
                            : gradient.dtype == DType::complex128 ? DType::float64
                                                                  : gradient.dtype;
    for (const double sum : tile_sums(gradient)) tiles.push_back({component, sum});
  }
  std::vector<double> member_sums;
  const auto count = static_cast<std::ptrdiff_t>(tiles.size());
  for (std::ptrdiff_t member = 0; member < members; ++member) {
    std::vector<Tile> own(tiles.begin() + count * member / members,
                          tiles.begin() + count * (member + 1) / members);
    std::ranges::stable_sort(own, {}, &Tile::component);
    std::vector<double> sums;
    for (const Tile& tile : own) sums.push_back(tile.sum);
    member_sums.push_back(total_of(sums));
  }
  return norm_of_sums(member_sums);
}

double norm_of_parts(std::span<const HostArray> parts) {
  std::vector<double> member_sums;
  for (const HostArray& part : parts) member_sums.push_back(total_of(tile_sums(part)));
  return norm_of_sums(member_sums);
}

HostArray clipped(const HostArray& gradient, double norm, double max_norm) {
  const double factor = max_norm / (norm + 1e-6);
  if (factor >= 1) return gradient;
  HostArray result = gradient;
  visit_component(gradient.dtype, [&]<class T>() {
    for (std::size_t i = 0; i < gradient.bytes.size() / sizeof(T); ++i) {
      auto number = widened(number_at<T>(gradient, i));
      number *= static_cast<decltype(number)>(factor);
      const auto stored = static_cast<T>(number);
      std::memcpy(result.bytes.data() + i * sizeof(T), &stored, sizeof(T));
    }
  });
  return result;
}

}  // namespace tutti::test
