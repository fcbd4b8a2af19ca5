// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/reduce_op.hpp"

#include <span>
#include <string_view>

/// The reductions of tutti-perf, under the names that -o takes and tables show.
namespace tutti::perf {

/// The only reduction of `ReduceKind::compiled`: the larger of two absolute values, compiled from source
/// text.
inline constexpr std::string_view compiled_reduction = "absmax";
/// The factor of premul_sum.
inline constexpr int premul_factor = 2;

[[nodiscard]] std::string_view name_of_reduction(ReduceKind kind) noexcept;
/// Returns all reductions that have a name.
[[nodiscard]] std::span<const ReduceKind> named_reductions() noexcept;
/// Returns the operation for calls. All compiled ones have the same text, so that it is compiled once.
[[nodiscard]] ReduceOp operation_of(ReduceKind kind);

}  // namespace tutti::perf
