// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/kernels/stores.hpp"
#include "backend/operations.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

/// Implements the operations on addresses that the calling thread may use. Synchronous; they neither allocate
/// nor throw.
namespace tutti::backend::host {

void copy_rows(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
               std::size_t row_bytes, std::size_t rows);

/// Copies the rectangle that `segment` describes from `source` to each of `targets`, reading it once.
void fan_out_segment(const FanOutSegment& segment, const std::byte* source,
                     std::span<std::byte* const> targets, Stores stores);

/// Copies `bytes` bytes from `given` to `exposed`, and those that were there to `taken`, which may be
/// `given`.
void swap_bytes(std::size_t bytes, const std::byte* given, std::byte* exposed, std::byte* taken);

/// Combines `count` elements of each of `inputs`, in ascending order, into each of `outputs`.
void ordered_reduction_segment(DType dtype, const Reducing& reducing, std::size_t count,
                               std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                               Stores stores);

/// Returns the bytes from the first to the last that a strided array of `task`'s shape covers; 0 if it has no
/// elements.
[[nodiscard]] std::size_t strided_bytes(const Convert& task,
                                        const std::array<std::int64_t, max_dimensions>& strides, DType dtype);
/// Converts the elements; `task.target` and `task.source` must be usable addresses.
void convert_elements(const Convert& task);

void fill_elements(const Fill& task, std::byte* target);

void random_fill_elements(const RandomFill& task, std::byte* target);

}  // namespace tutti::backend::host
