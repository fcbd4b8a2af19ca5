#include "operation.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::perf {
namespace {

/// How many tensors a coalesced operation moves in a sweep over sizes.
constexpr int tensors_of_a_sweep = 16;

void append(Lists& lists, std::size_t list, const Tensor& tensor) {
  if (lists.size() <= list) lists.resize(list + 1);
  lists[list].push_back(tensor);
}

/// About as many rows as columns: rows are a power of two.
std::vector<std::int64_t> matrix_sizes(std::int64_t elements) {
  std::int64_t rows = 1;
  while (rows * rows * 4 <= elements) rows *= 2;
  return {rows, elements / rows};
}

}  // namespace

void Call::add_input(std::size_t list, const Tensor& tensor, const Content& content) {
  append(inputs, list, tensor);
  input_buffers.push_back({tensor, content});
}

void Call::add_output(std::size_t list, const Tensor& tensor, const Content& content) {
  add_aliasing_output(list, tensor, content);
  slots_.back().poisonable = true;
  poisonable.push_back({tensor, content});
}

void Call::add_aliasing_output(std::size_t list, const Tensor& tensor, const Content& content) {
  append(outputs, list, tensor);
  output_buffers.push_back({tensor, content});
  slots_.push_back({list, outputs[list].size() - 1, false});
}

void Call::set_outputs(Lists results) {
  outputs = std::move(results);
  std::size_t next_poisonable = 0;
  for (std::size_t buffer = 0; buffer < slots_.size(); ++buffer) {
    const Slot& slot = slots_[buffer];
    output_buffers[buffer].tensor = outputs[slot.list][slot.index];
    if (slot.poisonable) poisonable[next_poisonable++].tensor = output_buffers[buffer].tensor;
  }
}

void Call::drop_outputs() {
  for (std::vector<Tensor>& list : outputs) std::ranges::fill(list, Tensor());
  for (Buffer& buffer : output_buffers) buffer.tensor = {};
  for (Buffer& buffer : poisonable) buffer.tensor = {};
}

std::vector<TensorSpec> payload_tensors(const Case& what, bool coalesced) {
  std::vector<TensorSpec> specs;
  if (!coalesced) {
    const auto elements = static_cast<std::int64_t>(what.bytes / size_of(what.dtype));
    specs.push_back(
        {what.dim == 0 ? std::vector<std::int64_t>{elements} : matrix_sizes(elements), what.dtype});
    return specs;
  }
  specs = what.tensors.empty() ? split_evenly(what.bytes, what.dtype, tensors_of_a_sweep) : what.tensors;
  for (TensorSpec& spec : specs) spec.dtype = spec.dtype.value_or(what.dtype);
  return specs;
}

std::vector<Device> devices_of(const Case& what) {
  std::vector<Device> devices;
  for (int device = 0; device < what.device_count; ++device) devices.emplace_back(device);
  return devices;
}

Tensor make_tensor(const TensorSpec& spec, int device) {
  return empty(spec.sizes, {.dtype = *spec.dtype, .device = device});
}

Lists make_copies(const std::vector<Tensor>& originals, int device_count) {
  Lists copies;
  for (int device = 0; device < device_count; ++device) {
    if (originals.size() > 1 && originals[0].device() != Device(device)) {
      // Staged works on every topology and needs no communicator.
      copies.push_back(broadcast_coalesced(originals, {device}, default_buffer_size,
                                           {.transport = TransportKind::staged})[0]);
      continue;
    }
    std::vector<Tensor>& list = copies.emplace_back();
    for (const Tensor& original : originals) {
      const std::vector<std::int64_t> sizes(original.sizes().begin(), original.sizes().end());
      list.push_back(empty(sizes, {.dtype = original.dtype(), .device = device}));
    }
  }
  return copies;
}

Content whole_content(const TensorSpec& spec, const Case& what, std::size_t index, Pattern pattern,
                      int source, int all_sources) {
  // A tensor without elements has no first row either; a row length of one keeps the arithmetic defined.
  std::int64_t elements = 1;
  for (const std::int64_t size : spec.sizes) elements *= size;
  return {.dtype = *spec.dtype,
          .pattern = pattern,
          .seed = mix_seed(what.seed, index),
          .first_source = source,
          .source_count = 1,
          .all_sources = all_sources,
          .row_length = std::max<std::int64_t>(elements, 1),
          .row_stride = std::max<std::int64_t>(elements, 1),
          .offset = 0};
}

std::span<const Operation* const> collective_operations() {
  static const std::array<const Operation*, 6> all{
      &operations::broadcast(),  &operations::broadcast_coalesced(),
      &operations::reduce_add(), &operations::reduce_add_coalesced(),
      &operations::scatter(),    &operations::gather()};
  return all;
}

const Operation& copy_operation() {
  return operations::sendrecv();
}

const Operation* find_operation(std::string_view name) {
  for (const Operation* operation : collective_operations()) {
    if (operation->name() == name) return operation;
  }
  return copy_operation().name() == name ? &copy_operation() : nullptr;
}

}  // namespace tutti::perf
