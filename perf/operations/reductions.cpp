// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/reductions.hpp"

#include <algorithm>
#include <array>

namespace tutti::perf {

std::string_view name_of_reduction(ReduceKind kind) noexcept {
  return kind == ReduceKind::compiled ? compiled_reduction : name_of(kind);
}

std::span<const ReduceKind> named_reductions() noexcept {
  static const auto all = [] {
    std::array<ReduceKind, all_reduce_kinds.size() + 1> kinds{};
    std::ranges::copy(all_reduce_kinds, kinds.begin());
    kinds.back() = ReduceKind::compiled;
    return kinds;
  }();
  return all;
}

ReduceOp operation_of(ReduceKind kind) {
  if (kind == ReduceKind::premul_sum) return ReduceOp::premul_sum(premul_factor);
  if (kind != ReduceKind::compiled) return kind;
  static const ReduceOp larger_magnitude = ReduceOp::compiled(
      "template <typename T> T absmax(T a, T b) {\n"
      "  const T x = a < T(0) ? T(-a) : a;\n"
      "  const T y = b < T(0) ? T(-b) : b;\n"
      "  return x < y ? y : x;\n"
      "}\n");
  return larger_magnitude;
}

}  // namespace tutti::perf
