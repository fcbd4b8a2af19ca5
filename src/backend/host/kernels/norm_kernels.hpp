// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/norm_calls.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// Implements `NormCalls` on addresses that the calling thread may use. Synchronous; they neither allocate
/// nor throw.
namespace tutti::backend::host {

/// Writes one sum for each tile of a piece.
void square_sums_of_piece(DType dtype, const std::byte* elements, std::uint64_t count, double* sums);
/// Returns the total of the sums.
[[nodiscard]] double total_of(std::span<const double> sums);
void scale_piece(DType dtype, std::byte* elements, std::uint64_t count, double factor);

}  // namespace tutti::backend::host
