// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

/// Values and memory that come from the caller, and values that go there.
namespace tutti {
namespace {

/// Memory that a function of the user's releases.
class BlobStorage final : public Storage {
 public:
  BlobStorage(const TensorView& view, std::function<void(void*)> release)
      : Storage(view.data(), view.layout()->span_bytes(), view.device()), release_(std::move(release)) {}
  // A release that throws terminates the program, as any throwing destructor does.
  ~BlobStorage() override { release_(data()); }

 private:
  std::function<void(void*)> release_;
};

/// Calls `make`, whose errors are the function's.
template <class Make>
auto named(std::string_view function, std::string_view thrower, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    std::string_view reason = error.what();
    if (reason.starts_with(thrower)) reason.remove_prefix(thrower.size());
    throw Error(error.code(), fmt::format("{}: {}", function, reason));
  }
}

/// Throws unless the memory may be where `view` says.
void require_place(const TensorView& view) {
  const Device device = view.device();
  if (!device.is_host()) Runtime::get().require_device(device, "from_blob");
  Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime == nullptr || view.numel() == 0) return;
  const backend::PointerInfo info = runtime->backend().pointer_info(view.data());
  if (info.kind != backend::MemoryKind::device || info.is_managed || info.device == device.index()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("from_blob: options.device is {}, but data is {}, memory of {}", to_string(device),
                          view.data(), to_string(Device(info.device))));
}

Tensor blob_of(void* data, LayoutPtr layout, Device device, std::function<void(void*)> release) {
  const TensorView view = named("from_blob", "TensorView: ", [&] {
    require_address(data, *layout);
    return TensorView(data, std::move(layout), device);
  });
  require_place(view);
  if (!release) return Tensor(view);
  return {detail::IntrusivePtr<Storage>::adopt(new BlobStorage(view, std::move(release))), view};
}

/// Views `data`, which is only read, byte by byte: any alignment will do.
Tensor host_view(const void* data, LayoutPtr layout) {
  return Tensor(TensorView(const_cast<void*>(data), std::move(layout), Device::host()));
}

}  // namespace

Tensor from_blob(void* data, IntList sizes, const TensorOptions& options,
                 std::function<void(void*)> release) {
  const DType dtype = options.dtype.value_or(DType::float32);
  LayoutPtr layout =
      named("from_blob", "Layout: ", [&] { return make_layout(dtype, sizes, options.format); });
  return blob_of(data, std::move(layout), options.device, std::move(release));
}

Tensor from_blob(void* data, IntList sizes, const TensorOptions& options, IntList strides,
                 std::function<void(void*)> release) {
  const DType dtype = options.dtype.value_or(DType::float32);
  LayoutPtr layout = named("from_blob", "Layout: ", [&] { return make_layout(dtype, sizes, strides); });
  return blob_of(data, std::move(layout), options.device, std::move(release));
}

Tensor detail::tensor_of(const void* values, std::size_t count, DType dtype, IntList sizes,
                         const TensorOptions& options) {
  LayoutPtr layout = named("tensor", "Layout: ", [&] { return make_layout(dtype, sizes); });
  if (count != static_cast<std::size_t>(layout->numel())) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tensor: {} values are given, expected {} for sizes {}", count, layout->numel(),
                            to_string(sizes)));
  }
  TensorOptions typed = options;
  typed.dtype = options.dtype.value_or(dtype);
  Tensor result = make_empty(sizes, typed, "tensor");
  result.copy_(host_view(values, std::move(layout)));
  return result;
}

void detail::refuse_rows(std::size_t row, std::size_t length, std::size_t expected) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("tensor: rows[{}] has {} values, expected {} as in rows[0]", row, length, expected));
}

void Tensor::require_elements(std::size_t given, const char* function) const {
  if (given == static_cast<std::size_t>(numel())) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: values has {} elements, expected the tensor's {}", function, given, numel()));
}

void Tensor::copy_to_host(void* target) const {
  LayoutPtr ordered = is_contiguous() ? layout() : make_layout(dtype(), sizes());
  static_cast<void>(host_view(target, std::move(ordered)).copy_(*this));
}

void Tensor::copy_from_host(const void* source) const {
  copy_(host_view(source, is_contiguous() ? layout() : make_layout(dtype(), sizes())));
}

}  // namespace tutti
