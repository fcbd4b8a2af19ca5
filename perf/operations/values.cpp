// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/values.hpp"

#include "perf/operations/reductions.hpp"

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

/// Consecutive positions of the imaginary array.
struct Positions {
  std::uint64_t first;
  std::size_t count;
};

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

/// Every integer from 0 to this one is a value of T, and sums up to it are exact. Of bool, sources take
/// turns: under a logical or, a one from each would hide what another one lacks.
template <class T>
constexpr std::uint64_t largest_integer = std::min<std::uint64_t>(std::numeric_limits<T>::max(), 1U << 20U);
template <>
constexpr std::uint64_t largest_integer<bool> = 0;
template <>
constexpr std::uint64_t largest_integer<float> = std::uint64_t{1} << 20U;
template <>
constexpr std::uint64_t largest_integer<double> = std::uint64_t{1} << 20U;
template <>
constexpr std::uint64_t largest_integer<Float16> = 2048;
template <>
constexpr std::uint64_t largest_integer<BFloat16> = 256;
template <>
constexpr std::uint64_t largest_integer<Float8E4M3> = 16;
template <>
constexpr std::uint64_t largest_integer<Float8E5M2> = 8;

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
        mask_(std::bit_floor(largest / most_summed(content) + 1) - 1),
        shared_salt_(content.seed),
        source_(static_cast<std::uint64_t>(source)),
        turns_(static_cast<std::uint64_t>(content.all_sources) + 1),
        is_factor_(content.reduce_kind == ReduceKind::prod) {}

  /// Where the element type is too small for a one from every source, at most one source has a one at each
  /// position.
  [[nodiscard]] bool takes_turns() const noexcept { return mask_ == 0 || is_factor_; }
  [[nodiscard]] std::uint64_t at(std::uint64_t position) const noexcept {
    return (hash(position, salt_) >> 40U) & mask_;
  }
  /// Likewise at most one factor is a two, and the others are ones.
  [[nodiscard]] std::uint64_t turn_at(std::uint64_t position) const noexcept {
    const std::uint64_t turn = (hash(position, shared_salt_) >> 40U) % turns_ == source_ ? 1 : 0;
    return is_factor_ ? 1 + turn : turn;
  }

 private:
  /// How often the largest value may be added.
  [[nodiscard]] static std::uint64_t most_summed(const Content& content) noexcept {
    const bool is_doubled = content.reduce_kind == ReduceKind::premul_sum;
    return static_cast<std::uint64_t>(content.all_sources) * (is_doubled ? premul_factor : 1);
  }

  std::uint64_t salt_;
  std::uint64_t mask_;
  std::uint64_t shared_salt_;
  std::uint64_t source_;
  std::uint64_t turns_;
  bool is_factor_;
};

/// Puts a source's values to those of the sources before it by `combine`.
template <class Combine>
void take_source(const SourceValues& values, Positions positions, std::uint32_t* totals, Combine combine) {
  if (values.takes_turns()) {
    for (std::size_t k = 0; k < positions.count; ++k)
      totals[k] = combine(totals[k], static_cast<std::uint32_t>(values.turn_at(positions.first + k)));
  } else {
    for (std::size_t k = 0; k < positions.count; ++k)
      totals[k] = combine(totals[k], static_cast<std::uint32_t>(values.at(positions.first + k)));
  }
}
void take_source(const SourceValues& values, Positions positions, std::uint32_t* totals, ReduceKind kind,
                 bool is_first) {
  using Number = std::uint32_t;
  if (is_first) return take_source(values, positions, totals, [](Number, Number b) { return b; });
  switch (kind) {
    case ReduceKind::min:
      return take_source(values, positions, totals, [](Number a, Number b) { return std::min(a, b); });
    case ReduceKind::max:
    case ReduceKind::compiled:  // absmax: no value is negative
      return take_source(values, positions, totals, [](Number a, Number b) { return std::max(a, b); });
    case ReduceKind::prod:
      return take_source(values, positions, totals, [](Number a, Number b) { return a * b; });
    case ReduceKind::band:
      return take_source(values, positions, totals, [](Number a, Number b) { return a & b; });
    case ReduceKind::bor:
      return take_source(values, positions, totals, [](Number a, Number b) { return a | b; });
    case ReduceKind::bxor:
      return take_source(values, positions, totals, [](Number a, Number b) { return a ^ b; });
    case ReduceKind::sum:
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
      return take_source(values, positions, totals, [](Number a, Number b) { return a + b; });
  }
}

/// A total of `count` sources divided by that, as accumulators do it.
template <class T>
T encode_mean(std::uint32_t total, int count) {
  if constexpr (std::is_integral_v<T>) {
    return encode<T>(total / static_cast<std::uint32_t>(count));
  } else {
    using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;
    return T(static_cast<Accumulator>(total) / static_cast<Accumulator>(count));
  }
}

template <class T>
T encode_total(const Content& content, std::uint32_t total) {
  if (content.is_input) return encode<T>(total);
  if (content.reduce_kind == ReduceKind::avg) return encode_mean<T>(total, content.source_count);
  if (content.reduce_kind == ReduceKind::premul_sum) return encode<T>(total * premul_factor);
  return encode<T>(total);
}

template <class T>
void fill_components(const Content& content, Positions positions, T* target) {
  constexpr std::size_t block = 1024;  // totals stay in the first-level cache
  std::array<std::uint32_t, block> totals;
  for (std::size_t done = 0; done < positions.count; done += block) {
    const Positions part{positions.first + done, std::min(block, positions.count - done)};
    for (int source = content.first_source; source < content.first_source + content.source_count; ++source) {
      take_source(SourceValues(content, source, largest_integer<T>), part, totals.data(), content.reduce_kind,
                  source == content.first_source);
    }
    for (std::size_t k = 0; k < part.count; ++k) target[done + k] = encode_total<T>(content, totals[k]);
  }
}

/// Products of complex numbers mix their parts: there the numbers are real ones.
template <class Part>
void fill_real_numbers(const Content& content, Positions positions, Part* target) {
  fill_components(content, positions, target);
  for (std::size_t k = positions.count; k-- > 0;) {
    target[2 * k] = target[k];
    target[2 * k + 1] = Part{};
  }
}

/// Writes what sources contribute at these positions, reduced as `content` says.
void fill_integers(const Content& content, Positions positions, void* target) {
  visit_dtype(content.dtype, [&]<class T>() {
    constexpr std::size_t parts = Component<T>::per_element;
    if constexpr (parts == 2) {
      if (content.reduce_kind == ReduceKind::prod)
        return fill_real_numbers(content, positions, static_cast<typename Component<T>::Type*>(target));
    }
    fill_components(content, {positions.first * parts, positions.count * parts},
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
