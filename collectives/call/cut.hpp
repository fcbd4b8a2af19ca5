// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::collectives {

/// Returns the tensors as vectors of one element, which `memory` holds, if none of them has a dimension:
/// vectors can be joined. Otherwise returns the tensors as they are.
[[nodiscard]] TensorList as_vectors(TensorList tensors, std::vector<Tensor>& memory);

/// Returns the parts of a dimension that is cut without sizes: ceil(size / count) each, the last smaller,
/// empty ones where nothing is left.
[[nodiscard]] std::vector<std::int64_t> equal_chunks(std::int64_t size, std::size_t count);

}  // namespace tutti::collectives
