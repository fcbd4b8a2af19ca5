// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

using Sizes = std::vector<std::int64_t>;

/// Elements in index order, on the host: what a tensor should hold. The functions below are the tests' own
/// model of the collectives; they share no code with the library.
struct HostArray {
  DType dtype = DType::float32;
  Sizes sizes;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::int64_t numel() const;
  friend bool operator==(const HostArray&, const HostArray&) = default;
};

[[nodiscard]] std::int64_t element_count(const Sizes& sizes);

/// Any bits at all (bool: 0 and 1), for what is only moved.
[[nodiscard]] HostArray random_bits(DType dtype, const Sizes& sizes, std::uint64_t seed);
/// Numbers whose floating-point sums depend on the order and on the accumulator, but neither overflow nor are
/// NaN; integers of all magnitudes, so that sums wrap around.
[[nodiscard]] HostArray random_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed);
/// Floating-point numbers at the edges of their format: NaNs of several bits, infinities, zeros, the least
/// and the largest numbers, of both signs, and some between.
[[nodiscard]] HostArray special_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed);

/// The part `start <= index < start + length` of `dim`, which may be negative.
[[nodiscard]] HostArray slice(const HostArray& array, int dim, std::int64_t start, std::int64_t length);
[[nodiscard]] HostArray concatenate(std::span<const HostArray> arrays, int dim);
/// Sizes of `parts` chunks of `size` when none are given: ceil(size / parts) each, the last ones smaller or
/// empty.
[[nodiscard]] Sizes equal_chunks(std::int64_t size, std::size_t parts);
/// Cuts `array` into chunks of the given sizes.
[[nodiscard]] std::vector<HostArray> split(const HostArray& array, int dim, const Sizes& chunk_sizes);

/// Faster than comparing vectors, which goes byte by byte.
[[nodiscard]] bool equal_bytes(std::span<const std::byte> left, std::span<const std::byte> right);

/// Where two arrays differ first, in words; empty if they are equal.
[[nodiscard]] std::string first_difference(const HostArray& expected, const HostArray& found);

/// 64-bit FNV-1a over the bytes.
[[nodiscard]] std::uint64_t fingerprint(const HostArray& array);

}  // namespace tutti::test
