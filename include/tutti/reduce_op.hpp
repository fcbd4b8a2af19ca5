// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Operations by which reductions combine elements.
namespace tutti {

class JitCombination;

/// Built-in operations. All combine the inputs (or members) element by element in ascending order, starting
/// from the first.
///
/// They accumulate in float32 for float16, bfloat16 and float8, rounding once at the end, and in the element
/// type itself for all others. Results have the same bits for all sizes, splits, transports (NCCL carries
/// only sums, and minimum, maximum and product of integers) and backends. A NaN result is the canonical quiet
/// NaN.
enum class ReduceKind : std::uint8_t {
  sum,  ///< integers wrap around; for bool, logical or
  /// The sum, divided once by the number of inputs, in the accumulator's type. For integers, the wrapped sum
  /// is divided and rounded toward zero. Not for bool.
  avg,
  /// The sum of inputs that are first multiplied by a factor each, in the accumulator's type. Not for bool.
  premul_sum,
  /// NaN if any input is NaN, as in IEEE 754-2019, and -0 is less than +0. For bool, logical and. Not for
  /// complex types.
  min,
  max,   ///< like `min`; for bool, logical or
  prod,  ///< integers wrap around; complex as (ac - bd, ad + bc); for bool, logical and
  band,  ///< bitwise and; only for integers and bool
  bor,   ///< bitwise or; only for integers and bool
  bxor,  ///< bitwise exclusive or; only for integers and bool
  /// A function given as source text, `ReduceOp::compiled`; the kind alone is no operation. Not for complex
  /// types and float8.
  compiled,
};
/// Lists the kinds that a name alone determines: all but `compiled`.
inline constexpr std::array all_reduce_kinds{
    ReduceKind::sum,  ReduceKind::avg,  ReduceKind::premul_sum, ReduceKind::min,  ReduceKind::max,
    ReduceKind::prod, ReduceKind::band, ReduceKind::bor,        ReduceKind::bxor,
};
/// Returns the enumerator's name, for instance "premul_sum".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(ReduceKind kind) noexcept;
/// Parses a name as `name_of` returns it. Throws Error(invalid_argument) for any other text.
[[nodiscard]] TUTTI_EXPORT ReduceKind parse_reduce_kind(std::string_view text);

/// An operation: a kind, with the factors of a `premul_sum` or the source of a `compiled` one. Kinds convert
/// to it: `ReduceOp::avg`, `ReduceKind::avg`.
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
  /// Multiplies every input by `factor`, which is rounded to the accumulator's type and must be whole for
  /// integers.
  [[nodiscard]] static ReduceOp premul_sum(double factor) { return ReduceOp({factor}); }
  /// Multiplies input (or member) i by factors[i].
  [[nodiscard]] static ReduceOp premul_sum(std::vector<double> factors) {
    return ReduceOp(std::move(factors));
  }
  /// Combines elements by a function of two values, given as source text: a function template in C++17 with
  /// one type, the last one of the text, as for `create_jit_fn`.
  ///
  ///     auto op = ReduceOp::compiled("template <typename T> T larger(T a, T b) { return a < b ? b : a; }");
  ///     Tensor result = reduce(inputs, op);
  ///
  /// Each element of the result is `f(f(f(x0, x1), x2), x3)`, for the inputs (or members) in ascending order;
  /// for a single input, it is that one. For float16 and bfloat16 the type is float, and the result is
  /// rounded to nearest: once, or with more than 64 inputs once after the first 64 and once after every 63
  /// more, the number that one kernel takes. So the bits of a result depend only on the text and the inputs,
  /// and are the same on GPUs and on virtual devices if the text follows the rules of `create_jit_fn`. The
  /// text determines which NaN results.
  ///
  /// The first call for an element type compiles the text, which may take seconds, for all devices of this
  /// process that take part. It blocks meanwhile, and queues nothing before. The process keeps the compiled
  /// code. Calls cost a kernel per tensor, where built-in operations need one for all tensors. A
  /// communicator's call first copies the operands to the member that combines them, and needs memory for
  /// them meanwhile: as much as one member's tensor, or as several that are handled together, 16 MiB in all.
  /// The root of a `reduce`, and all members in an `all_reduce` of at most 64 KiB, need as much as the
  /// tensors of all members. The lists of an `all_reduce_coalesced` are handled together if all members can
  /// have equal shares; else, and in a `reduce_coalesced`, tensors of more than 64 KiB are handled one by
  /// one. NCCL may carry the operands, but combines nothing. All ranks give the same text.
  ///
  /// Throws Error(invalid_argument) if there is no function template in the text, if it is unclear which one
  /// comes last, or if another function comes last. Calls throw Error(invalid_argument) with the compiler's
  /// words for a text that it refuses, for complex types and float8, and if an output is an input after the
  /// 64th; and Error(unsupported) or Error(out_of_memory) if there is no compiler or the compiler itself
  /// fails, as functions of `create_jit_fn` do.
  [[nodiscard]] TUTTI_EXPORT static ReduceOp compiled(std::string source);

  [[nodiscard]] ReduceKind kind() const noexcept { return kind_; }
  /// Returns the factors of a `premul_sum`: one for all inputs (or members), or one for each. Empty for other
  /// operations.
  [[nodiscard]] const std::vector<double>& factors() const noexcept { return factors_; }
  /// Returns the source of a compiled operation. Empty for other operations.
  [[nodiscard]] TUTTI_EXPORT const std::string& source() const noexcept;
  friend bool operator==(const ReduceOp& a, const ReduceOp& b) noexcept {
    return a.kind_ == b.kind_ && a.factors_ == b.factors_ && a.source() == b.source();
  }

 private:
  friend struct ReduceOpAccess;
  explicit ReduceOp(std::vector<double> factors)
      : kind_(ReduceKind::premul_sum), factors_(std::move(factors)) {}

  ReduceKind kind_;
  std::vector<double> factors_{};
  std::shared_ptr<const JitCombination> combination_{};
};

}  // namespace tutti
