// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/values.hpp"

#include "perf/operations/integer_values.hpp"
#include "perf/operations/positions.hpp"

#include <algorithm>
#include <concepts>
#include <cstring>
#include <vector>

namespace tutti::perf {
namespace {

template <std::unsigned_integral Word>
void fill_bits(std::uint64_t salt, Positions positions, Word* target) {
  constexpr unsigned shift = 64 - 8 * sizeof(Word);
  for (std::size_t k = 0; k < positions.count; ++k)
    target[k] = static_cast<Word>(hash(positions.first + k, salt) >> shift);
}

void fill_bits_of(const Content& content, Positions positions, void* target) {
  const std::uint64_t salt = mix_seed(content.seed, static_cast<std::uint64_t>(content.first_source));
  if (content.dtype == DType::boolean) {
    auto* const flags = static_cast<std::uint8_t*>(target);
    for (std::size_t k = 0; k < positions.count; ++k) {
      flags[k] = static_cast<std::uint8_t>(hash(positions.first + k, salt) >> 63U);
    }
    return;
  }
  switch (size_of(content.dtype)) {
    case 1:
      return fill_bits(salt, positions, static_cast<std::uint8_t*>(target));
    case 2:
      return fill_bits(salt, positions, static_cast<std::uint16_t*>(target));
    case 4:
      return fill_bits(salt, positions, static_cast<std::uint32_t*>(target));
    case 8:
      return fill_bits(salt, positions, static_cast<std::uint64_t*>(target));
    default:
      return fill_bits(salt, {positions.first * 2, positions.count * 2}, static_cast<std::uint64_t*>(target));
  }
}

}  // namespace

std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t mixed = (seed ^ (value + 1) * golden_ratio) * 0xbf58476d1ce4e5b9ULL;
  mixed ^= mixed >> 31U;
  return mixed * 0x94d049bb133111ebULL;
}

void generate(const Content& content, std::int64_t first, std::int64_t count, void* target) {
  auto* bytes = static_cast<std::byte*>(target);
  while (count > 0) {
    const std::int64_t column = first % content.row_length;
    const std::int64_t in_row = std::min(count, content.row_length - column);
    const std::int64_t position = content.offset + first / content.row_length * content.row_stride + column;
    const Positions positions{static_cast<std::uint64_t>(position), static_cast<std::size_t>(in_row)};
    if (content.pattern == Pattern::bits) {
      fill_bits_of(content, positions, bytes);
    } else {
      fill_integers(content, positions, bytes);
    }
    bytes += positions.count * size_of(content.dtype);
    first += in_row;
    count -= in_row;
  }
}

void generate_poison(const Content& content, std::int64_t first, std::int64_t count, void* target) {
  generate(content, first, count, target);
  const std::byte flip{static_cast<std::uint8_t>(content.dtype == DType::boolean ? 0x01U : 0xffU)};
  auto* const bytes = static_cast<std::byte*>(target);
  const std::size_t size = static_cast<std::size_t>(count) * size_of(content.dtype);
  for (std::size_t k = 0; k < size; ++k) bytes[k] ^= flip;
}

std::uint64_t count_wrong(const Content& content, std::int64_t first, std::int64_t count,
                          const void* actual) {
  constexpr std::int64_t block = 4096;
  const std::size_t element = size_of(content.dtype);
  std::vector<std::byte> expected(static_cast<std::size_t>(block) * element);
  const auto* bytes = static_cast<const std::byte*>(actual);
  std::uint64_t wrong = 0;
  while (count > 0) {
    const std::int64_t now = std::min(block, count);
    const std::size_t size = static_cast<std::size_t>(now) * element;
    generate(content, first, now, expected.data());
    if (std::memcmp(expected.data(), bytes, size) != 0) {
      for (std::size_t at = 0; at < size; at += element) {
        if (std::memcmp(expected.data() + at, bytes + at, element) != 0) ++wrong;
      }
    }
    bytes += size;
    first += now;
    count -= now;
  }
  return wrong;
}

}  // namespace tutti::perf
