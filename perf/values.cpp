// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <concepts>
#include <cstring>
#include <type_traits>
#include <vector>

namespace tutti::perf {
namespace {

constexpr std::uint64_t golden_ratio = 0x9e3779b97f4a7c15ULL;

/// The upper bits are well mixed; one multiplication, because checking must keep up with GiB.
constexpr std::uint64_t hash(std::uint64_t position, std::uint64_t salt) noexcept {
  return (position + salt) * golden_ratio;
}

/// Consecutive positions of the array.
struct Run {
  std::uint64_t position;
  std::size_t count;
};

// --- Pattern::bits
// ---------------------------------------------------------------------------------------------------

template <std::unsigned_integral Word>
void fill_bits(std::uint64_t salt, Run run, Word* target) {
  constexpr unsigned shift = 64 - 8 * sizeof(Word);
  for (std::size_t k = 0; k < run.count; ++k)
    target[k] = static_cast<Word>(hash(run.position + k, salt) >> shift);
}

void fill_bits_of(const Content& content, Run run, void* target) {
  const std::uint64_t salt = mix_seed(content.seed, static_cast<std::uint64_t>(content.first_source));
  if (content.dtype == DType::boolean) {
    auto* const flags = static_cast<std::uint8_t*>(target);
    for (std::size_t k = 0; k < run.count; ++k) {
      flags[k] = static_cast<std::uint8_t>(hash(run.position + k, salt) >> 63U);
    }
    return;
  }
  switch (size_of(content.dtype)) {
    case 1:
      return fill_bits(salt, run, static_cast<std::uint8_t*>(target));
    case 2:
      return fill_bits(salt, run, static_cast<std::uint16_t*>(target));
    case 4:
      return fill_bits(salt, run, static_cast<std::uint32_t*>(target));
    case 8:
      return fill_bits(salt, run, static_cast<std::uint64_t*>(target));
    default:
      return fill_bits(salt, {run.position * 2, run.count * 2}, static_cast<std::uint64_t*>(target));
  }
}

// --- Pattern::integers
// -----------------------------------------------------------------------------------------------

/// A real number type or half of a complex one.
template <class T>
struct Component {
  using Type = T;
  static constexpr std::size_t per_element = 1;
};
template <class T>
struct Component<std::complex<T>> {
  using Type = T;
  static constexpr std::size_t per_element = 2;
};

/// Every integer from 0 to this one is a value of T, and sums up to it are exact.
template <class T>
constexpr std::uint64_t largest_integer = std::uint64_t{1} << 20U;
template <>
constexpr std::uint64_t largest_integer<Float8E5M2> = 8;
template <>
constexpr std::uint64_t largest_integer<Float8E4M3> = 16;
template <>
constexpr std::uint64_t largest_integer<BFloat16> = 256;
template <>
constexpr std::uint64_t largest_integer<Float16> = 2048;
template <>
constexpr std::uint64_t largest_integer<std::int8_t> = 127;
template <>
constexpr std::uint64_t largest_integer<std::uint8_t> = 255;
template <>
constexpr std::uint64_t largest_integer<std::int16_t> = 32767;

/// Sources take turns: under a logical or, a one from each would hide what another one lacks.
template <>
constexpr std::uint64_t largest_integer<bool> = 0;

template <class T>
T encode(std::uint64_t value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    static const std::vector<T> table = [] {
      std::vector<T> values;
      for (std::uint64_t k = 0; k <= largest_integer<T>; ++k) values.push_back(T(static_cast<float>(k)));
      return values;
    }();
    return table[value];
  }
}

/// What one source contributes at one position.
class SourceValues {
 public:
  SourceValues(const Content& content, int source, std::uint64_t largest)
      : salt_(mix_seed(content.seed, static_cast<std::uint64_t>(source))),
        mask_(std::bit_floor(largest / static_cast<std::uint64_t>(content.all_sources) + 1) - 1),
        shared_salt_(content.seed),
        source_(static_cast<std::uint64_t>(source)),
        turns_(static_cast<std::uint64_t>(content.all_sources) + 1) {}

  /// Where the element type is too small for a one from every source, at most one source has a one at each
  /// position.
  [[nodiscard]] bool takes_turns() const noexcept { return mask_ == 0; }
  [[nodiscard]] std::uint64_t at(std::uint64_t position) const noexcept {
    return (hash(position, salt_) >> 40U) & mask_;
  }
  [[nodiscard]] std::uint64_t turn_at(std::uint64_t position) const noexcept {
    return (hash(position, shared_salt_) >> 40U) % turns_ == source_ ? 1 : 0;
  }

 private:
  std::uint64_t salt_;
  std::uint64_t mask_;
  std::uint64_t shared_salt_;
  std::uint64_t source_;
  std::uint64_t turns_;
};

void add_source(const SourceValues& values, Run run, std::uint32_t* sums) {
  if (values.takes_turns()) {
    for (std::size_t k = 0; k < run.count; ++k)
      sums[k] += static_cast<std::uint32_t>(values.turn_at(run.position + k));
  } else {
    for (std::size_t k = 0; k < run.count; ++k)
      sums[k] += static_cast<std::uint32_t>(values.at(run.position + k));
  }
}

template <class T>
void fill_integers(const Content& content, Run run, T* target) {
  constexpr std::size_t block = 1024;  // sums stay in the first-level cache
  std::array<std::uint32_t, block> sums;
  for (std::size_t done = 0; done < run.count; done += block) {
    const Run part{run.position + done, std::min(block, run.count - done)};
    std::fill_n(sums.begin(), part.count, 0U);
    for (int source = content.first_source; source < content.first_source + content.source_count; ++source) {
      add_source(SourceValues(content, source, largest_integer<T>), part, sums.data());
    }
    for (std::size_t k = 0; k < part.count; ++k) target[done + k] = encode<T>(sums[k]);
  }
}

void fill_integers_of(const Content& content, Run run, void* target) {
  visit_dtype(content.dtype, [&]<class T>() {
    constexpr std::size_t parts = Component<T>::per_element;
    fill_integers(content, {run.position * parts, run.count * parts},
                  static_cast<typename Component<T>::Type*>(target));
  });
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
    const Run run{static_cast<std::uint64_t>(position), static_cast<std::size_t>(in_row)};
    if (content.pattern == Pattern::bits) {
      fill_bits_of(content, run, bytes);
    } else {
      fill_integers_of(content, run, bytes);
    }
    bytes += run.count * size_of(content.dtype);
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
