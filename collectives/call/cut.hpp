// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// Makes vectors of one element, which `memory` holds, of tensors without dimensions, if all are such, so
/// that they can be joined; returns other tensors as they are.
[[nodiscard]] TensorList as_vectors(TensorList tensors, std::vector<Tensor>& memory);

/// Returns the parts of a dimension that is cut without sizes: ceil(size / count) each, the last smaller,
/// empty ones where nothing is left.
[[nodiscard]] std::vector<std::int64_t> equal_chunks(std::int64_t size, std::size_t count);

}  // namespace tutti::collectives
