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

/// Whether the library allocated the tensor's memory and so need not look it up.
[[nodiscard]] inline bool is_believed(const Tensor& tensor) {
  return tensor.defined() && tensor.storage() && tensor.storage()->is_library_memory();
}

}  // namespace tutti::collectives
