// SPDX-License-Identifier: Apache-2.0
#include "collectives/cut.hpp"

#include <algorithm>
#include <utility>

namespace tutti::collectives {

void add_cut(std::vector<std::uint64_t>& shape, std::uint64_t rows, std::uint64_t row_bytes,
             std::size_t parts) {
  shape.reserve(2 + 2 * parts);
  shape.push_back(rows);
  shape.push_back(row_bytes);
}

void add_part(std::vector<std::uint64_t>& shape, std::uint64_t offset, std::uint64_t bytes) {
  shape.push_back(offset);
  shape.push_back(bytes);
}

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

void describe_cut(const Call& call, transport::Problem& problem, CutDirection direction,
                  transport::BufferId whole, transport::BufferId first_part) {
  const std::vector<std::uint64_t>& shape = call.shape();
  const std::uint64_t rows = shape[0];
  const std::uint64_t whole_pitch = shape[1];
  for (std::size_t word = 2; word < shape.size(); word += 2) {
    const auto part = static_cast<transport::BufferId>(first_part + word / 2 - 1);
    const std::uint64_t part_pitch = shape[word + 1];
    if (part_pitch == 0 || rows == 0) continue;
    transport::Place from{whole, shape[word]};
    transport::Place to{part, 0};
    transport::Flow flow;
    flow.row_bytes = part_pitch;
    flow.rows = rows;
    flow.source_pitch = whole_pitch;
    flow.target_pitch = part_pitch;
    if (direction == CutDirection::together) {
      std::swap(from, to);
      std::swap(flow.source_pitch, flow.target_pitch);
    }
    if (part_pitch == whole_pitch) {  // the part is all there is: no gaps
      flow.row_bytes *= rows;
      flow.rows = 1;
    }
    flow.source = from;
    flow.targets = {static_cast<std::uint32_t>(problem.places.size()), 1};
    problem.places.push_back(to);
    problem.flows.push_back(flow);
  }
}

}  // namespace tutti::collectives
