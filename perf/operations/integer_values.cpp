// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/integer_values.hpp"

#include "perf/operations/reductions.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <type_traits>
#include <vector>

namespace tutti::perf {
namespace {

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
template <>
constexpr std::uint64_t largest_integer<std::uint16_t> = 65535;

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
  constexpr std::size_t block = 1024;
  std::array<Part, block> reals;
  for (std::size_t done = 0; done < positions.count; done += block) {
    const Positions part{positions.first + done, std::min(block, positions.count - done)};
    fill_components(content, part, reals.data());
    for (std::size_t k = 0; k < part.count; ++k) {
      target[2 * (done + k)] = reals[k];
      target[2 * (done + k) + 1] = Part{};
    }
  }
}

}  // namespace

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

}  // namespace tutti::perf
