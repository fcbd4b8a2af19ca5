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

/// The expected elements of a tensor, in index order, on the host. The functions below are the tests' own
/// model of the collectives; they share no code with the library.
struct HostArray {
  DType dtype = DType::float32;
  Sizes sizes;
  std::vector<std::byte> bytes;

  [[nodiscard]] std::int64_t numel() const;
  friend bool operator==(const HostArray&, const HostArray&) = default;
};

[[nodiscard]] std::int64_t element_count(const Sizes& sizes);

/// Returns arbitrary bits (bool: 0 and 1), for elements that are only moved.
[[nodiscard]] HostArray random_bits(DType dtype, const Sizes& sizes, std::uint64_t seed);
/// Returns numbers whose floating-point sums depend on the order and on the accumulator, but neither overflow
/// nor are NaN; integers of all magnitudes, so that sums wrap around.
[[nodiscard]] HostArray random_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed);
/// Returns floating-point numbers at the edges of their format: NaNs of several bits, infinities, zeros, the
/// least and the largest numbers, of both signs, and some between.
[[nodiscard]] HostArray special_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed);

/// Returns the part `start <= index < start + length` of `dim`, which may be negative.
[[nodiscard]] HostArray slice(const HostArray& array, int dim, std::int64_t start, std::int64_t length);
[[nodiscard]] HostArray concatenate(std::span<const HostArray> arrays, int dim);
/// Returns the default sizes of `parts` chunks of `size`: ceil(size / parts) each, the last ones smaller or
/// empty.
[[nodiscard]] Sizes equal_chunks(std::int64_t size, std::size_t parts);
/// Cuts `array` into chunks of the given sizes.
[[nodiscard]] std::vector<HostArray> split(const HostArray& array, int dim, const Sizes& chunk_sizes);

/// Compares bytes, faster than comparing vectors does.
[[nodiscard]] bool equal_bytes(std::span<const std::byte> left, std::span<const std::byte> right);

/// Describes the first difference of two arrays; empty if they are equal.
[[nodiscard]] std::string first_difference(const HostArray& expected, const HostArray& found);

/// Returns the 64-bit FNV-1a hash of the bytes.
[[nodiscard]] std::uint64_t fingerprint(const HostArray& array);

}  // namespace tutti::test
