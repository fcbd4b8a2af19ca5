// SPDX-License-Identifier: Apache-2.0
#include "support/values/host_array.hpp"

#include "support/values/number_formats.hpp"
#include "support/values/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::test {

namespace {

std::size_t normalized(const HostArray& array, int dim) {
  return static_cast<std::size_t>(dim < 0 ? dim + static_cast<int>(array.sizes.size()) : dim);
}

/// Bytes of everything behind dimension `dim`.
std::size_t inner_bytes(const HostArray& array, std::size_t dim) {
  std::size_t bytes = size_of(array.dtype);
  for (std::size_t d = dim + 1; d < array.sizes.size(); ++d)
    bytes *= static_cast<std::size_t>(array.sizes[d]);
  return bytes;
}

std::size_t outer_count(const HostArray& array, std::size_t dim) {
  std::size_t count = 1;
  for (std::size_t d = 0; d < dim; ++d) count *= static_cast<std::size_t>(array.sizes[d]);
  return count;
}

HostArray unset(DType dtype, const Sizes& sizes) {
  const auto count = static_cast<std::size_t>(element_count(sizes));
  return {dtype, sizes, std::vector<std::byte>(count * size_of(dtype))};
}

}  // namespace

std::int64_t element_count(const Sizes& sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

std::int64_t HostArray::numel() const {
  return element_count(sizes);
}

HostArray random_bits(DType dtype, const Sizes& sizes, std::uint64_t seed) {
  HostArray array = unset(dtype, sizes);
  for (std::size_t start = 0; start < array.bytes.size(); start += sizeof(std::uint64_t)) {
    const std::uint64_t bits = random_at(seed, start / sizeof(std::uint64_t));
    std::memcpy(array.bytes.data() + start, &bits, std::min(sizeof bits, array.bytes.size() - start));
  }
  if (dtype == DType::boolean) {
    for (std::byte& value : array.bytes) value &= std::byte{1};
  }
  return array;
}

HostArray random_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed) {
  HostArray array = random_bits(dtype, sizes, seed);
  const NumberFormat format = format_of(dtype);
  if (!format.is_floating()) return array;
  // Keep the random sign and mantissa, and draw the exponent from a range whose sums stay finite in every
  // format.
  const std::size_t width = format.bytes();
  const std::uint64_t sign_and_mantissa =
      (std::uint64_t{1} << (format.exponent_bits + format.mantissa_bits)) |
      ((std::uint64_t{1} << format.mantissa_bits) - 1);
  for (std::size_t start = 0; start < array.bytes.size(); start += width) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, array.bytes.data() + start, width);
    const std::uint64_t exponent = format.bias() - 4 + random_at(~seed, start / width) % 8;
    bits = (bits & sign_and_mantissa) | exponent << format.mantissa_bits;
    std::memcpy(array.bytes.data() + start, &bits, width);
  }
  return array;
}

HostArray special_numbers(DType dtype, const Sizes& sizes, std::uint64_t seed) {
  HostArray array = random_bits(dtype, sizes, seed);
  const NumberFormat format = format_of(dtype);
  const std::uint64_t one = 1;
  const std::uint64_t all_exponents = ((one << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint64_t sign = one << (format.exponent_bits + format.mantissa_bits);
  const std::array magnitudes{
      std::uint64_t{0},                                         // zero
      one,                                                      // the least above it
      format.bias() << format.mantissa_bits,                    // 1
      (format.bias() << format.mantissa_bits) + 1,              // the next
      (format.bias() + 1) << format.mantissa_bits,              // 2
      all_exponents - 1,                                        // the largest, or a large one
      all_exponents,                                            // infinity, where there is one
      all_exponents | ((one << format.mantissa_bits) - 1),      // a quiet NaN, the canonical one
      all_exponents | one << (format.mantissa_bits - 1) | one,  // another
  };
  Random random(seed);
  for (std::size_t start = 0; start < array.bytes.size(); start += format.bytes()) {
    const std::uint64_t bits = random.pick(magnitudes) | (random.one_in(2) ? sign : 0);
    std::memcpy(array.bytes.data() + start, &bits, format.bytes());
  }
  return array;
}

HostArray slice(const HostArray& array, int dim, std::int64_t start, std::int64_t length) {
  const std::size_t axis = normalized(array, dim);
  Sizes sizes = array.sizes;
  sizes.at(axis) = length;
  HostArray part = unset(array.dtype, sizes);
  const std::size_t inner = inner_bytes(array, axis);
  const std::size_t source_row = inner * static_cast<std::size_t>(array.sizes[axis]);
  const std::size_t row = inner * static_cast<std::size_t>(length);
  if (part.bytes.empty()) return part;
  for (std::size_t outer = 0; outer < outer_count(array, axis); ++outer) {
    std::memcpy(part.bytes.data() + outer * row,
                array.bytes.data() + outer * source_row + static_cast<std::size_t>(start) * inner, row);
  }
  return part;
}

HostArray concatenate(std::span<const HostArray> arrays, int dim) {
  const std::size_t axis = normalized(arrays.front(), dim);
  Sizes sizes = arrays.front().sizes;
  sizes.at(axis) = 0;
  for (const HostArray& array : arrays) sizes[axis] += array.sizes.at(axis);
  HostArray whole = unset(arrays.front().dtype, sizes);
  const std::size_t row = inner_bytes(whole, axis) * static_cast<std::size_t>(sizes[axis]);
  std::size_t offset = 0;
  for (const HostArray& array : arrays) {
    const std::size_t part = inner_bytes(array, axis) * static_cast<std::size_t>(array.sizes[axis]);
    for (std::size_t outer = 0; part != 0 && outer < outer_count(array, axis); ++outer) {
      std::memcpy(whole.bytes.data() + outer * row + offset, array.bytes.data() + outer * part, part);
    }
    offset += part;
  }
  return whole;
}

Sizes equal_chunks(std::int64_t size, std::size_t parts) {
  const auto count = static_cast<std::int64_t>(parts);
  const std::int64_t chunk = (size + count - 1) / count;
  Sizes chunks;
  for (std::size_t part = 0; part < parts; ++part) {
    chunks.push_back(std::min(chunk, size));
    size -= chunks.back();
  }
  return chunks;
}

std::vector<HostArray> split(const HostArray& array, int dim, const Sizes& chunk_sizes) {
  std::vector<HostArray> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : chunk_sizes) {
    parts.push_back(slice(array, dim, start, length));
    start += length;
  }
  return parts;
}

bool equal_bytes(std::span<const std::byte> left, std::span<const std::byte> right) {
  return left.size() == right.size() &&
         (left.empty() || std::memcmp(left.data(), right.data(), left.size()) == 0);
}

std::string first_difference(const HostArray& expected, const HostArray& found) {
  if (expected.dtype != found.dtype) {
    return fmt::format("element type is {}, expected {}", name_of(found.dtype), name_of(expected.dtype));
  }
  if (expected.sizes != found.sizes)
    return fmt::format("sizes are {}, expected {}", found.sizes, expected.sizes);
  if (equal_bytes(expected.bytes, found.bytes)) return {};
  const std::size_t width = size_of(expected.dtype);
  const auto [a, b] = std::mismatch(expected.bytes.begin(), expected.bytes.end(), found.bytes.begin());
  const std::size_t element = static_cast<std::size_t>(a - expected.bytes.begin()) / width;
  std::size_t different = 0;
  for (std::size_t e = 0; e < expected.bytes.size() / width; ++e) {
    different += std::memcmp(&expected.bytes[e * width], &found.bytes[e * width], width) != 0 ? 1U : 0U;
  }
  const auto hex = [&](const HostArray& array) {
    std::string text = "0x";
    for (std::size_t byte = width; byte-- > 0;) {
      text += fmt::format("{:02x}", static_cast<unsigned>(array.bytes[element * width + byte]));
    }
    return text;
  };
  return fmt::format("element {} of {} {} is {}, expected {}; {} elements differ", element, expected.sizes,
                     name_of(expected.dtype), hex(found), hex(expected), different);
}

std::uint64_t fingerprint(const HostArray& array) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::byte value : array.bytes)
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x100000001b3ULL;
  return hash;
}

}  // namespace tutti::test
