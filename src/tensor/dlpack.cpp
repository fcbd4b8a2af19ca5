// SPDX-License-Identifier: Apache-2.0
#include "tutti/dlpack.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "base/enumerators.hpp"
#include "base/fork_mark.hpp"
#include "device/blocking_call.hpp"
#include "device/runtime.hpp"
#include "settings/log.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tensor/dlpack_versioned.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <dlpack/dlpack.h>
#include <fmt/format.h>

namespace tutti {
namespace {

// Numbers of the DLPack ABI that older headers do not name.
constexpr std::uint8_t dl_bool = 6;
constexpr std::uint8_t dl_float8_e4m3fn = 10;
constexpr std::uint8_t dl_float8_e5m2 = 12;

std::uint8_t code_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::float32:
    case DType::float64:
      return kDLFloat;
    case DType::bfloat16:
      return kDLBfloat;
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
      return kDLInt;
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
      return kDLUInt;
    case DType::boolean:
      return dl_bool;
    case DType::complex64:
    case DType::complex128:
      return kDLComplex;
    case DType::float8_e4m3:
      return dl_float8_e4m3fn;
    case DType::float8_e5m2:
      return dl_float8_e5m2;
  }
  return kDLOpaqueHandle;
}

DLDataType to_dl(DType dtype) {
  return {.code = code_of(dtype), .bits = static_cast<std::uint8_t>(size_of(dtype) * 8), .lanes = 1};
}

DType dtype_from(const DLDataType& type) {
  const auto* const found = std::ranges::find_if(all_dtypes, [&](DType dtype) {
    const DLDataType known = to_dl(dtype);
    return known.code == type.code && known.bits == type.bits && known.lanes == type.lanes;
  });
  if (found != all_dtypes.end()) return *found;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("from_dlpack: dtype has code {}, {} bits and {} lanes, expected an element type of tutti",
                  type.code, type.bits, type.lanes));
}

DLDevice to_dl(const Tensor& tensor) {
  if (!tensor.device().is_host()) {
    return {Runtime::get().backend().kind() == BackendKind::cuda ? kDLCUDA : kDLExtDev,
            tensor.device().index()};
  }
  // Memory that virtual devices call pinned is ordinary memory to everyone else.
  const bool pinned_for_gpus = tensor.is_pinned() && Runtime::get().backend().kind() == BackendKind::cuda;
  return {pinned_for_gpus ? kDLCUDAHost : kDLCPU, 0};
}

/// Owns what an exported struct, of either kind, refers to.
template <class Managed>
struct Exported {
  explicit Exported(const Tensor& source) : tensor(source) {
    std::ranges::copy(tensor.sizes(), shape.begin());
    std::ranges::copy(tensor.strides(), strides.begin());
    managed.dl_tensor = {.data = tensor.data(),
                         .device = to_dl(tensor),
                         .ndim = tensor.dim(),
                         .dtype = to_dl(tensor.dtype()),
                         .shape = shape.data(),
                         .strides = strides.data(),
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->manager_ctx); };
  }

  Tensor tensor;
  std::array<std::int64_t, max_dimensions> shape{};
  std::array<std::int64_t, max_dimensions> strides{};
  Managed managed{};
};

/// Orders the tensor's memory for its consumer.
void hand_over(const Tensor& tensor, const Stream* consumer, std::string_view function) {
  if (consumer == nullptr) return;
  if (!tensor.device().is_host()) {
    Runtime& runtime = Runtime::get();
    runtime.require_device(tensor.device(), function);
    runtime.part<Streams>().order(current_stream_ref(runtime, tensor.device().index()),
                                  StreamAccess::ref(*consumer));
  }
  // The consumer may call the deleter while its own work is still queued.
  tensor.record_stream(*consumer);
}

template <class Managed>
void call_deleter(void* managed) {
  auto* const tensor = static_cast<Managed*>(managed);
  if (tensor->deleter != nullptr) tensor->deleter(tensor);
}

/// Memory of another library. It is given back when its last owner is gone and the streams that used it are
/// done.
class ImportedStorage final : public Storage {
 public:
  /// Takes over `managed`. `home` is the stream that uses the memory unless `record_stream` names others;
  /// none for host memory.
  template <class Managed>
  ImportedStorage(const TensorView& view, Managed* managed, MemoryAccess access,
                  std::optional<backend::StreamRef> home)
      : Storage(view.data(), view.layout()->span_bytes(), view.device(), MemoryOrigin::foreign, access),
        managed_(managed),
        deleter_(call_deleter<Managed>) {
    if (home) streams_.push_back(*home);
  }

  ~ImportedStorage() override {
    const std::shared_ptr<void> owner(managed_, deleter_);
    if (fork_mark_.is_in_child()) return;  // the streams are its parent's
    for (const backend::StreamRef stream : streams_) finish(stream, owner);
  }

  void record_stream(const Stream& stream) override {
    const backend::StreamRef ref = StreamAccess::ref(stream);
    if (graph_keeps(*this, ref)) return;
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(streams_, ref) == streams_.end()) streams_.push_back(ref);
  }

 private:
  /// Waits for the stream. A stream that is being captured cannot be waited for: its graph becomes an owner.
  /// Work on a stream must not wait for another stream: that work's own stream becomes an owner.
  static void finish(backend::StreamRef stream, const std::shared_ptr<void>& owner) noexcept {
    Runtime& runtime = Runtime::get();
    backend::Backend& backend = runtime.backend();
    try {
      if (backend.is_capturing(stream)) {
        runtime.part<GraphCaptures>().retain(stream, owner);
      } else if (backend.is_in_stream_work()) {
        let_go_after_work_of(stream, owner);
      } else {
        BlockingCall::warn("the end of an imported tensor");
        backend.synchronize_stream(stream);
      }
    } catch (const std::exception& error) {
      // Nobody can receive this failure, which is mostly one of the stream's work.
      log_warning(fmt::format("while an imported tensor was given back: {}", error.what()));
    }
  }

  static void let_go_after_work_of(backend::StreamRef stream, std::shared_ptr<void> owner) {
    using Owner = std::shared_ptr<void>;
    auto held = std::make_unique<Owner>(std::move(owner));
    Runtime::get().backend().launch_host_function(
        stream, [](void* argument) { const std::unique_ptr<Owner> last(static_cast<Owner*>(argument)); },
        held.get());
    static_cast<void>(held.release());
  }

  ForkMark fork_mark_;
  void* managed_;
  void (*deleter_)(void*);
  std::mutex mutex_;
  std::vector<backend::StreamRef> streams_;
};

/// Returns the place that `device` names, checked against the address if possible.
Device device_from(const DLDevice& device, const void* data, std::int64_t numel) {
  switch (static_cast<int>(device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost:
      return Device::host();
    case kDLCUDA:
    case kDLExtDev:
      break;
    default:
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("from_dlpack: device type is {}, expected kDLCPU (1), kDLCUDA (2), kDLCUDAHost (3) or "
                      "kDLExtDev (12)",
                      static_cast<int>(device.device_type)));
  }
  Runtime& runtime = Runtime::get();
  const bool on_gpus = runtime.backend().kind() == BackendKind::cuda;
  if (on_gpus != (device.device_type == kDLCUDA)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("from_dlpack: device type is {}, expected {} on the {} backend",
                            on_gpus ? "kDLExtDev" : "kDLCUDA", on_gpus ? "kDLCUDA" : "kDLExtDev",
                            name_of(runtime.backend().kind())));
  }
  // A negative index means neither the host nor the current device here.
  if (device.device_id < 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("from_dlpack: device id is {}, expected 0 or more", device.device_id));
  }
  runtime.require_device(device.device_id, "from_dlpack");
  if (!on_gpus && numel != 0) {
    const backend::PointerInfo info = runtime.backend().pointer_info(data);
    if (!info.is_of(device.device_id)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("from_dlpack: data is {}, which is not memory of virtual device {}", data,
                              device.device_id));
    }
  }
  return Device(device.device_id);
}

LayoutPtr layout_from(const DLTensor& tensor) {
  if (tensor.ndim < 0 || tensor.ndim > max_dimensions) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("from_dlpack: ndim is {}, expected 0 to {}", tensor.ndim, max_dimensions));
  }
  const DType dtype = dtype_from(tensor.dtype);
  if (tensor.shape == nullptr && tensor.ndim != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("from_dlpack: shape is nullptr, expected {} sizes, as ndim says", tensor.ndim));
  }
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  const std::span<const std::int64_t> sizes(tensor.shape, rank);
  if (tensor.strides == nullptr) return make_layout(dtype, sizes);
  return make_layout(dtype, sizes, std::span<const std::int64_t>(tensor.strides, rank));
}

/// Checks everything without taking anything over.
TensorView view_of(const DLTensor& tensor) {
  LayoutPtr layout = layout_from(tensor);
  // Added as integers: for a tensor without elements `data` may be nullptr.
  const auto data = reinterpret_cast<std::uintptr_t>(tensor.data);
  if (data == 0 && layout->numel() != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("from_dlpack: data is nullptr, expected the address of {} elements", layout->numel()));
  }
  std::uintptr_t address = 0;
  std::uintptr_t end = 0;
  if (__builtin_add_overflow(data, tensor.byte_offset, &address) ||
      __builtin_add_overflow(address, layout->span_bytes(), &end)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "from_dlpack: byte_offset is {}, expected one that leads from data ({}) to {} bytes of memory",
            tensor.byte_offset, tensor.data, layout->span_bytes()));
  }
  const Device device = device_from(tensor.device, reinterpret_cast<void*>(address), layout->numel());
  return {reinterpret_cast<void*>(address), layout->dtype(), IntList(layout->sizes()),
          IntList(layout->strides()), device};
}

template <class Managed>
Tensor take_over(Managed* managed, MemoryAccess access, const Stream* producer) {
  const TensorView view = view_of(managed->dl_tensor);
  std::optional<backend::StreamRef> home;
  if (!view.device().is_host()) {
    Runtime& runtime = Runtime::get();
    home = current_stream_ref(runtime, view.device().index());
    if (producer != nullptr) runtime.part<Streams>().order(StreamAccess::ref(*producer), *home);
  } else if (producer != nullptr) {
    const BlockingCall blocks("from_dlpack");
    producer->synchronize();  // the host has no stream that could wait
  }
  return {detail::IntrusivePtr<Storage>::adopt(new ImportedStorage(view, managed, access, home)), view};
}

}  // namespace

DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream* consumer) {
  require_defined(tensor, "to_dlpack", "tensor");
  require_writable(tensor, "to_dlpack", "tensor");
  auto exported = std::make_unique<Exported<DLManagedTensor>>(tensor);
  hand_over(tensor, consumer, "to_dlpack");
  return &exported.release()->managed;
}

DLManagedTensorVersioned* to_dlpack_versioned(const Tensor& tensor, const Stream* consumer,
                                              MemoryAccess access) {
  require_defined(tensor, "to_dlpack_versioned", "tensor");
  require_enumerator(access, MemoryAccess::read_only, "to_dlpack_versioned", "access");
  auto exported = std::make_unique<Exported<DLManagedTensorVersioned>>(tensor);
  exported->managed.version = {.major = 1, .minor = 0};
  if (access == MemoryAccess::read_only || tensor.is_read_only()) exported->managed.flags = dl_flag_read_only;
  hand_over(tensor, consumer, "to_dlpack_versioned");
  return &exported.release()->managed;
}

Tensor from_dlpack(DLManagedTensor* managed, const Stream* producer) {
  if (managed == nullptr) {
    throw Error(ErrorCode::invalid_argument, "from_dlpack: managed is nullptr, expected a DLManagedTensor");
  }
  return take_over(managed, MemoryAccess::read_write, producer);
}

Tensor from_dlpack_versioned(DLManagedTensorVersioned* managed, const Stream* producer) {
  if (managed == nullptr) {
    throw Error(ErrorCode::invalid_argument,
                "from_dlpack_versioned: managed is nullptr, expected a DLManagedTensorVersioned");
  }
  if (managed->version.major != 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("from_dlpack_versioned: version is {}.{}, expected 1.x", managed->version.major,
                            managed->version.minor));
  }
  const bool is_read_only = (managed->flags & dl_flag_read_only) != 0;
  return take_over(managed, is_read_only ? MemoryAccess::read_only : MemoryAccess::read_write, producer);
}

}  // namespace tutti
