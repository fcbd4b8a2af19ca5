#pragma once

#include "runtime.hpp"
#include "tutti/tensor.hpp"

#include <span>
#include <vector>

namespace tutti::collectives {

/// New tensors of the given dense layouts in one allocation on `device`, for first use on its current stream.
/// Costs a few nanoseconds per tensor. Throws OutOfMemoryError.
[[nodiscard]] std::vector<Tensor> allocate_together(Runtime& runtime, std::span<const LayoutPtr> layouts,
                                                    Device device);

}  // namespace tutti::collectives
