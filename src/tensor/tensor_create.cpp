// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"
#include "base/enumerators.hpp"
#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <memory>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Makes a layout. `function` is the caller's name for errors.
LayoutPtr layout_for(std::string_view function, DType dtype, IntList sizes,
                     MemoryFormat format = MemoryFormat::contiguous) {
  try {
    return make_layout(dtype, sizes, format);
  } catch (const Error& error) {
    std::string_view reason = error.what();
    constexpr std::string_view thrower = "Layout: ";
    if (reason.starts_with(thrower)) reason.remove_prefix(thrower.size());
    throw Error(error.code(), fmt::format("{}: {}", function, reason));
  }
}

/// Makes a tensor with `layout`, on the device that `options` name, or else on that of `other`.
Tensor make_like(const Tensor& other, LayoutPtr layout, const LikeOptions& options,
                 std::string_view function) {
  const Device wanted = options.device.value_or(other.device());
  const Device device = wanted.is_current() ? Device(current_device()) : wanted;
  return allocate_tensor(std::move(layout), device, options.host_memory, function);
}

Tensor make_new(const Tensor& other, IntList sizes, const LikeOptions& options, std::string_view function) {
  require_defined(other, function, "the tensor");
  return make_like(other,
                   layout_for(function, options.dtype.value_or(other.dtype()), sizes,
                              options.format.value_or(MemoryFormat::contiguous)),
                   options, function);
}

}  // namespace

Tensor make_empty(IntList sizes, const TensorOptions& options, std::string_view function) {
  const Device device = options.device.is_current() ? Device(current_device()) : options.device;
  return allocate_tensor(layout_for(function, options.dtype.value_or(DType::float32), sizes, options.format),
                         device, options.host_memory, function);
}

Tensor make_like(const Tensor& other, const LikeOptions& options, std::string_view function) {
  require_defined(other, function, "other");
  const DType dtype = options.dtype.value_or(other.dtype());
  LayoutPtr layout = dense_layout(other.layout());
  if (options.format) {
    layout = layout_for(function, dtype, IntList(other.sizes()), *options.format);
  } else if (dtype != other.dtype()) {
    layout = make_layout(dtype, layout->sizes(), layout->strides());
  }
  return make_like(other, std::move(layout), options, function);
}

Tensor allocate_tensor(LayoutPtr layout, Device device, HostMemory host_memory, std::string_view function) {
  require_enumerator(host_memory, HostMemory::pinned, function, "options.host_memory");
  const std::size_t bytes = layout->nbytes();
  detail::IntrusivePtr<Storage> storage;
  if (device.is_host()) {
    storage = host_memory == HostMemory::pinned ? PinnedStorage::allocate(Runtime::get(), bytes)
                                                : PageableStorage::allocate(bytes);
  } else {
    Runtime& runtime = Runtime::get();
    runtime.require_device(device, function);
    if (host_memory == HostMemory::pinned) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: options.host_memory is pinned, but options.device is {}, expected host",
                              function, to_string(device)));
    }
    storage =
        DeviceStorage::allocate(runtime, device.index(), bytes, current_stream_ref(runtime, device.index()));
  }
  void* const data = storage->data();
  return {std::move(storage), TensorView(data, std::move(layout), device)};
}

void keep_if_captured(const Tensor& temporary, Device place) {
  if (place.is_host()) return;
  Runtime& runtime = Runtime::get();
  const backend::StreamRef stream = current_stream_ref(runtime, place.index());
  if (runtime.backend().is_capturing(stream))
    runtime.part<GraphCaptures>().retain(stream, std::make_shared<Tensor>(temporary));
}

void require_writable(const Tensor& tensor, std::string_view function, std::string_view argument) {
  if (!tensor.is_read_only()) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: {} is read-only memory, expected memory that may be written to", function, argument));
}

LayoutPtr dense_layout(const LayoutPtr& layout) {
  return layout->is_dense() ? layout : make_layout(layout->dtype(), layout->sizes());
}

Tensor empty(IntList sizes, const TensorOptions& options) {
  return make_empty(sizes, options, "empty");
}

Tensor zeros(IntList sizes, const TensorOptions& options) {
  return make_empty(sizes, options, "zeros").fill_(0.0);
}

Tensor ones(IntList sizes, const TensorOptions& options) {
  return make_empty(sizes, options, "ones").fill_(1.0);
}

Tensor full(IntList sizes, double value, const TensorOptions& options) {
  return make_empty(sizes, options, "full").fill_(value);
}

Tensor empty_like(const Tensor& other, const LikeOptions& options) {
  return make_like(other, options, "empty_like");
}

Tensor zeros_like(const Tensor& other, const LikeOptions& options) {
  return make_like(other, options, "zeros_like").fill_(0.0);
}

Tensor ones_like(const Tensor& other, const LikeOptions& options) {
  return make_like(other, options, "ones_like").fill_(1.0);
}

Tensor full_like(const Tensor& other, double value, const LikeOptions& options) {
  return make_like(other, options, "full_like").fill_(value);
}

Tensor Tensor::new_empty(IntList sizes, const LikeOptions& options) const {
  return make_new(*this, sizes, options, "Tensor::new_empty");
}

Tensor Tensor::new_zeros(IntList sizes, const LikeOptions& options) const {
  return make_new(*this, sizes, options, "Tensor::new_zeros").fill_(0.0);
}

Tensor Tensor::new_ones(IntList sizes, const LikeOptions& options) const {
  return make_new(*this, sizes, options, "Tensor::new_ones").fill_(1.0);
}

Tensor Tensor::new_full(IntList sizes, double value, const LikeOptions& options) const {
  return make_new(*this, sizes, options, "Tensor::new_full").fill_(value);
}

}  // namespace tutti
