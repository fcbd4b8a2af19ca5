// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/reduce_op.hpp"

#include <span>
#include <string_view>

/// What tutti-perf combines elements by, under the names that -o takes and tables show.
namespace tutti::perf {

/// Of `ReduceKind::compiled` there is one: the larger of two absolute values, compiled from source text.
inline constexpr std::string_view compiled_reduction = "absmax";
/// What a premul_sum multiplies by.
inline constexpr int premul_factor = 2;

[[nodiscard]] std::string_view name_of_reduction(ReduceKind kind) noexcept;
/// All that can be named one by one.
[[nodiscard]] std::span<const ReduceKind> named_reductions() noexcept;
/// What a call is told. Of the one that is compiled all have the same text, so that it is compiled once.
[[nodiscard]] ReduceOp operation_of(ReduceKind kind);

}  // namespace tutti::perf
