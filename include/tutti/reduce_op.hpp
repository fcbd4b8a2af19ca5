// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

/// What reductions combine elements by.
namespace tutti {

/// All go through the inputs, or members, in ascending order, starting from the first, element by element.
///
/// Accumulators are those of sums: float32 for float16, bfloat16 and float8, which are rounded once, at the
/// end; the element type itself for all others. Results have the same bits on all sizes, splits, transports
/// (NCCL carries only sums, and minimum, maximum and product of integers) and backends. A NaN result is the
/// canonical quiet NaN.
enum class ReduceKind : std::uint8_t {
  sum,  ///< integers wrap around; of bool, logical or
  /// The sum, divided once by the number of inputs, in the accumulator. Integers: the sum that has wrapped
  /// around, rounded toward zero. Not of bool.
  avg,
  /// The sum of inputs that are each multiplied by a factor first, in the accumulator. Not of bool.
  premul_sum,
  /// NaN if any input is NaN, as IEEE 754-2019 has it, and -0 is less than +0. Of bool, logical and. Not of
  /// complex types.
  min,
  max,   ///< likewise; of bool, logical or
  prod,  ///< integers wrap around; complex as (ac - bd, ad + bc); of bool, logical and
  band,  ///< bitwise and; integers and bool alone
  bor,   ///< bitwise or; likewise
  bxor,  ///< bitwise exclusive or; likewise
};
inline constexpr std::array all_reduce_kinds{
    ReduceKind::sum,  ReduceKind::avg,  ReduceKind::premul_sum, ReduceKind::min,  ReduceKind::max,
    ReduceKind::prod, ReduceKind::band, ReduceKind::bor,        ReduceKind::bxor,
};
/// The enumerator's name, for instance "premul_sum".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(ReduceKind kind) noexcept;
/// The inverse of `name_of`. Throws Error(invalid_argument).
[[nodiscard]] TUTTI_EXPORT ReduceKind parse_reduce_kind(std::string_view text);

/// A kind, and the factors of a `premul_sum`. Kinds convert to it: `ReduceOp::avg`, `ReduceKind::avg`.
class ReduceOp {
 public:
  static constexpr ReduceKind sum = ReduceKind::sum;
  static constexpr ReduceKind avg = ReduceKind::avg;
  static constexpr ReduceKind min = ReduceKind::min;
  static constexpr ReduceKind max = ReduceKind::max;
  static constexpr ReduceKind prod = ReduceKind::prod;
  static constexpr ReduceKind band = ReduceKind::band;
  static constexpr ReduceKind bor = ReduceKind::bor;
  static constexpr ReduceKind bxor = ReduceKind::bxor;

  ReduceOp(ReduceKind kind = ReduceKind::sum) noexcept : kind_(kind) {}
  /// Every input times `factor`, which is rounded to the accumulator's type; of integers it is whole.
  [[nodiscard]] static ReduceOp premul_sum(double factor) { return ReduceOp({factor}); }
  /// Input, or member, i times factors[i].
  [[nodiscard]] static ReduceOp premul_sum(std::vector<double> factors) {
    return ReduceOp(std::move(factors));
  }

  [[nodiscard]] ReduceKind kind() const noexcept { return kind_; }
  /// Of a `premul_sum`: one, or one for each input or member. Of others none.
  [[nodiscard]] const std::vector<double>& factors() const noexcept { return factors_; }
  friend bool operator==(const ReduceOp&, const ReduceOp&) = default;

 private:
  explicit ReduceOp(std::vector<double> factors)
      : kind_(ReduceKind::premul_sum), factors_(std::move(factors)) {}

  ReduceKind kind_;
  std::vector<double> factors_{};
};

}  // namespace tutti
