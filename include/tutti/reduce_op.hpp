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

/// What reductions combine elements by.
namespace tutti {

class JitCombination;

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
  /// By a function given as source text, `ReduceOp::compiled`; the kind alone is no operation. Not of complex
  /// types and float8.
  compiled,
};
/// Those that a name alone says: all but `compiled`.
inline constexpr std::array all_reduce_kinds{
    ReduceKind::sum,  ReduceKind::avg,  ReduceKind::premul_sum, ReduceKind::min,  ReduceKind::max,
    ReduceKind::prod, ReduceKind::band, ReduceKind::bor,        ReduceKind::bxor,
};
/// The enumerator's name, for instance "premul_sum".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(ReduceKind kind) noexcept;
/// The inverse of `name_of`. Throws Error(invalid_argument).
[[nodiscard]] TUTTI_EXPORT ReduceKind parse_reduce_kind(std::string_view text);

/// A kind, and the factors of a `premul_sum`, or the text of a `compiled` one. Kinds convert to it:
/// `ReduceOp::avg`, `ReduceKind::avg`.
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
  /// By a function of two values, given as source text: a function template in C++17 with one type, the last
  /// one of the text, as `create_jit_fn` takes it.
  ///
  ///     auto op = ReduceOp::compiled("template <typename T> T larger(T a, T b) { return a < b ? b : a; }");
  ///     Tensor result = reduce(inputs, op);
  ///
  /// Each element of the result is `f(f(f(x0, x1), x2), x3)`, of the inputs, or members, in ascending order;
  /// of one alone, that one. For float16 and bfloat16 the type is float, and the result is rounded to
  /// nearest: once, or where there are more than 64 inputs once for the first 64 and for every 63 behind
  /// them, as one kernel takes so many. So the bits of a result depend on the text and the inputs alone, and
  /// are the same on GPUs and on virtual devices where the text keeps to what `create_jit_fn` says about
  /// that. Which NaN comes out is the text's affair.
  ///
  /// The first call for an element type compiles the text, which may take seconds, for all devices of this
  /// process that take part. It blocks meanwhile, and queues nothing before. The process keeps what it has
  /// compiled. Calls cost a kernel for each tensor where others need one for all of them. A communicator's
  /// call brings the operands to who combines them first, and needs memory for them meanwhile: for as many
  /// elements as a member's tensor has, or several of them, of 16 MiB in all, that go together. The root of
  /// a `reduce`, and all in an `all_reduce` of at most 64 KiB, need it for those of all members. Lists of an
  /// `all_reduce_coalesced` go together where all members can have equal shares; else, and in a
  /// `reduce_coalesced`, tensors of more than 64 KiB go one by one. NCCL may carry these, but combines
  /// nothing. All ranks give the same text.
  ///
  /// Throws Error(invalid_argument) if there is no function template in the text, if it cannot be told which
  /// one comes last, or if another function comes last. Calls throw Error(invalid_argument) with the
  /// compiler's words for a text that it refuses, for complex types and float8, and where an output is an
  /// input behind the 64th; and Error(unsupported) or Error(out_of_memory) where there
  /// is no compiler, or it fails itself, as functions of `create_jit_fn` do.
  [[nodiscard]] TUTTI_EXPORT static ReduceOp compiled(std::string source);

  [[nodiscard]] ReduceKind kind() const noexcept { return kind_; }
  /// Of a `premul_sum`: one, or one for each input or member. Of others none.
  [[nodiscard]] const std::vector<double>& factors() const noexcept { return factors_; }
  /// Of one that is compiled: its text. Of others empty.
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
