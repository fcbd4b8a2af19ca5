// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/cut.hpp"

#include <algorithm>
#include <utility>

namespace tutti::collectives {

TensorList as_vectors(TensorList tensors, std::vector<Tensor>& memory) {
  const auto is_scalar = [](const Tensor& tensor) { return tensor.defined() && tensor.dim() == 0; };
  if (tensors.empty() || !std::ranges::all_of(tensors, is_scalar)) return tensors;
  memory.reserve(tensors.size());
  for (const Tensor& tensor : tensors) memory.push_back(tensor.view({1}));
  return memory;
}

std::vector<std::int64_t> equal_chunks(std::int64_t size, std::size_t count) {
  const auto parts = static_cast<std::int64_t>(count);
  const std::int64_t chunk = size / parts + (size % parts != 0 ? 1 : 0);
  std::vector<std::int64_t> sizes;
  sizes.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    sizes.push_back(std::min(chunk, size));
    size -= sizes.back();
  }
  return sizes;
}

}  // namespace tutti::collectives
