// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// What scatter and gather plans are made from: one whole tensor, and parts of it along one dimension.
///
/// As numbers in a call's shape: rows, bytes of a whole row, then for each part its offset in the row and its
/// bytes.
void add_cut(std::vector<std::uint64_t>& shape, std::uint64_t rows, std::uint64_t row_bytes,
             std::size_t parts);
void add_part(std::vector<std::uint64_t>& shape, std::uint64_t offset, std::uint64_t bytes);

/// Tensors without dimensions, if all are such, as vectors of one element, which `memory` holds; else the
/// tensors as they are. What is joined has a dimension then.
[[nodiscard]] TensorList as_vectors(TensorList tensors, std::vector<Tensor>& memory);

/// The parts of a dimension that is cut without sizes: ceil(size / count) each, the last smaller, empty ones
/// where nothing is left.
[[nodiscard]] std::vector<std::int64_t> equal_chunks(std::int64_t size, std::size_t count);

enum class CutDirection : std::uint8_t { apart, together };

/// One flow per part that has bytes. The whole is buffer `whole`, part i is buffer `first_part + i`.
void describe_cut(const Call& call, transport::Problem& problem, CutDirection direction,
                  transport::BufferId whole, transport::BufferId first_part);

}  // namespace tutti::collectives
