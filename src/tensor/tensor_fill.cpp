// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"
#include "device/runtime.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>

namespace tutti {
namespace {

using ElementBytes = std::array<std::byte, 16>;

/// Converts `value` to an element of `dtype`.
ElementBytes element_bytes(double value, DType dtype) {
  alignas(16) ElementBytes bytes{};
  backend::host::convert_elements({.target = bytes.data(),
                                   .source = reinterpret_cast<const std::byte*>(&value),
                                   .target_dtype = dtype,
                                   .source_dtype = DType::float64});
  return bytes;
}

/// Returns the task that fills `count` consecutive elements from `target` on.
backend::Fill fill_task(void* target, const Layout& layout, const ElementBytes& value) {
  return {.target = static_cast<std::byte*>(target),
          .count = static_cast<std::size_t>(layout.numel()),
          .element_bytes = size_of(layout.dtype()),
          .value = value};
}

/// Spreads the one element at `source` over all indices of `target`.
backend::Convert spread_task(const TensorView& target, const void* source) {
  backend::Convert task{.target = static_cast<std::byte*>(target.data()),
                        .source = static_cast<const std::byte*>(source),
                        .target_dtype = target.dtype(),
                        .source_dtype = target.dtype(),
                        .rank = target.dim()};
  std::ranges::copy(target.sizes(), task.sizes.begin());
  std::ranges::copy(target.strides(), task.target_strides.begin());
  return task;
}

void fill_on_host(const TensorView& target, const ElementBytes& value) {
  if (target.layout()->is_dense()) {
    backend::host::fill_elements(fill_task(target.data(), *target.layout(), value),
                                 static_cast<std::byte*>(target.data()));
  } else {
    alignas(16) const ElementBytes element = value;
    backend::host::convert_elements(spread_task(target, element.data()));
  }
}

void fill_on_device(const TensorView& target, const ElementBytes& value) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(target.device(), "Tensor::fill_");
  const backend::StreamRef stream = current_stream_ref(runtime, target.device().index());
  if (target.layout()->is_dense()) {
    runtime.backend().fill(stream, fill_task(target.data(), *target.layout(), value));
    return;
  }
  const Tensor element = allocate_tensor(make_layout(target.dtype(), std::span<const std::int64_t>()),
                                         target.device(), HostMemory::pageable, "Tensor::fill_");
  runtime.backend().fill(stream, fill_task(element.data(), *element.layout(), value));
  runtime.backend().convert(stream, spread_task(target, element.data()));
  keep_if_captured(element, target.device());
}

}  // namespace

const Tensor& Tensor::fill_(double value) const {
  require_defined(view_, "Tensor::fill_", "the tensor");
  require_writable(*this, "Tensor::fill_", "the tensor");
  if (numel() == 0) return *this;
  const ElementBytes bytes = element_bytes(value, dtype());
  if (device().is_host()) {
    fill_on_host(view_, bytes);
  } else {
    fill_on_device(view_, bytes);
  }
  return *this;
}

}  // namespace tutti
