#pragma once

#include "runtime.hpp"
#include "tutti/tensor.hpp"

#include <span>
#include <vector>

namespace tutti::collectives {

/// New tensors of the given dense layouts in one allocation on `device`, for first use on `stream`, which may
/// be another device's. Costs a few nanoseconds per tensor. Throws OutOfMemoryError.
[[nodiscard]] std::vector<Tensor> allocate_together(Runtime& runtime, std::span<const LayoutPtr> layouts,
                                                    Device device, backend::StreamRef stream);
/// Bytes of that allocation.
[[nodiscard]] std::size_t bytes_together(std::span<const LayoutPtr> layouts);

}  // namespace tutti::collectives
