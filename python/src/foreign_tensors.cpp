// SPDX-License-Identifier: Apache-2.0
#include "foreign_tensors.hpp"

#include "arguments.hpp"
#include "exchange_api.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <dlpack/dlpack.h>
#include <nanobind/stl/string.h>

namespace tutti::python {

/// Describes a library of tensors; found once for each type.
struct Library {
  enum class Holds : std::uint8_t { all, host, devices };

  nb::object wrapping{};  ///< takes an object with `__dlpack__`, or for torch a capsule; invalid for none
  nb::object
      wrapping_on_host{};       ///< another library's, for tensors on the host, which this one does not hold
  nb::object unwrapping{};      ///< of torch: a tensor to a capsule
  nb::object current_stream{};  ///< takes the index of a GPU; invalid for libraries without streams
  const ExchangeApi* exchange = nullptr;
  Holds holds = Holds::all;
  bool is_torch = false;
};

namespace {

constexpr const char* plain_name = "dltensor";
constexpr const char* versioned_name = "dltensor_versioned";

std::string top_module(nb::handle type) {
  const nb::object module = nb::getattr(type, "__module__", nb::none());
  if (!nb::isinstance<nb::str>(module)) return {};
  const auto name = nb::cast<std::string>(module);
  return name.substr(0, name.find('.'));
}

nb::object loaded_module(const std::string& name) {
  const nb::dict modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  return modules.contains(name.c_str()) ? nb::object(modules[name.c_str()]) : nb::object();
}

/// Returns an attribute of the attributes that `path` names, or nothing.
nb::object attribute(nb::object object, std::initializer_list<const char*> path) {
  for (const char* const name : path) {
    if (object.is_valid() && !object.is_none()) object = nb::getattr(object, name, nb::none());
  }
  return object.is_valid() && !object.is_none() ? object : nb::object();
}

Library library_of_torch(const nb::object& module) {
  return {.wrapping = attribute(module, {"_C", "_from_dlpack"}),
          .unwrapping = attribute(module, {"utils", "dlpack", "to_dlpack"}),
          .current_stream = attribute(module, {"_C", "_cuda_getCurrentRawStream"}),
          .exchange = ExchangeApi::of(attribute(module, {"Tensor"})),
          .is_torch = true};
}

/// Looks through the bases, as a class that derives from a library's is one of its own.
Library find_library(nb::handle type) {
  for (const nb::handle base : nb::tuple(type.attr("__mro__"))) {
    const std::string name = top_module(base);
    if (name == "jaxlib") return {.wrapping = attribute(loaded_module("jax"), {"dlpack", "from_dlpack"})};
    const nb::object module = loaded_module(name);
    const nb::object wrapping = attribute(module, {"from_dlpack"});
    if (!wrapping.is_valid()) continue;
    if (name == "torch") return library_of_torch(module);
    Library library{.wrapping = wrapping,
                    .current_stream = attribute(module, {"cuda", "get_current_stream"})};
    if (name == "numpy") library.holds = Library::Holds::host;
    if (name == "cupy") {
      library.holds = Library::Holds::devices;
      library.wrapping_on_host = attribute(loaded_module("numpy"), {"from_dlpack"});
    }
    return library;
  }
  return {};
}

const Library& library_of(nb::handle object) {
  static auto* const libraries =
      new std::unordered_map<PyObject*, Library>;  // kept: they hold Python objects
  const nb::handle type = object.type();
  const auto found = libraries->find(type.ptr());
  if (found != libraries->end()) return found->second;
  type.inc_ref();  // so that no other type takes its address
  return libraries->emplace(type.ptr(), find_library(type)).first->second;
}

/// Refuses tensors of torch whose memory holds other values than they have: torch conjugates and negates
/// lazily.
void require_resolved(nb::handle tensor, const char* name) {
  const bool is_conjugated = nb::cast<bool>(tensor.attr("is_conj")());
  if (!is_conjugated && !nb::cast<bool>(tensor.attr("is_neg")())) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(name) + " is a lazily " + (is_conjugated ? "conjugated" : "negated") +
                  " tensor of torch, expected one that is not, such as `resolve_conj()` "
                  "and `resolve_neg()` return");
}

bool is_on_gpu(nb::handle object, const Library& library) {
  if (library.holds == Library::Holds::host || backend_kind() != BackendKind::cuda) return false;
  const nb::object method = nb::getattr(object, "__dlpack_device__", nb::none());
  return !method.is_none() && nb::cast<int>(method()[0]) == kDLCUDA;
}

/// Returns the stream for `__dlpack__`, whose work is ordered behind what the library has queued so far: None
/// on the host; -1, for none, where the call runs on the library's own current stream.
nb::object consumer_of(nb::handle object, const Library& library, Order order) {
  if (!is_on_gpu(object, library)) return nb::none();
  if (order == Order::of_library && library.current_stream.is_valid()) return nb::int_(-1);
  const Device device(nb::cast<int>(object.attr("__dlpack_device__")()[1]));
  const auto handle = reinterpret_cast<std::uintptr_t>(tutti::current_stream(device).native_handle());
  constexpr std::uintptr_t legacy_default = 1;
  return nb::int_(handle == 0 ? legacy_default : handle);
}

nb::object capsule_of(nb::handle object, const Library& library, const char* name, Order order) {
  if (library.is_torch && (order == Order::of_library || !nb::cast<bool>(object.attr("is_cuda")))) {
    const bool has_gradient = nb::cast<bool>(object.attr("requires_grad"));
    return library.unwrapping(has_gradient ? object.attr("detach")() : nb::borrow(object));
  }
  const nb::object given = library.is_torch ? object.attr("detach")() : nb::borrow(object);
  const nb::object method = nb::getattr(given, "__dlpack__", nb::none());
  if (method.is_none()) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " is " +
                                                 nb::cast<std::string>(nb::repr(object.type())) +
                                                 ", expected a tensor: an object with __dlpack__");
  }
  const nb::object stream = consumer_of(given, library, order);
  try {
    return method(nb::arg("stream") = stream, nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return stream.is_none() ? method() : method(nb::arg("stream") = stream);
}

std::optional<DType> dtype_from(const DLDataType& type) {
  if (type.lanes != 1) return std::nullopt;
  using Row = std::pair<std::pair<int, int>, DType>;
  static constexpr std::array rows{Row{{kDLFloat, 32}, DType::float32},
                                   Row{{kDLFloat, 64}, DType::float64},
                                   Row{{kDLFloat, 16}, DType::float16},
                                   Row{{kDLBfloat, 16}, DType::bfloat16},
                                   Row{{kDLInt, 64}, DType::int64},
                                   Row{{kDLInt, 32}, DType::int32},
                                   Row{{kDLInt, 16}, DType::int16},
                                   Row{{kDLInt, 8}, DType::int8},
                                   Row{{kDLUInt, 8}, DType::uint8},
                                   Row{{kDLUInt, 16}, DType::uint16},
                                   Row{{kDLUInt, 32}, DType::uint32},
                                   Row{{kDLUInt, 64}, DType::uint64},
                                   Row{{6, 8}, DType::boolean},
                                   Row{{kDLComplex, 64}, DType::complex64},
                                   Row{{kDLComplex, 128}, DType::complex128},
                                   Row{{10, 8}, DType::float8_e4m3},
                                   Row{{12, 8}, DType::float8_e5m2}};
  const auto* const found = std::ranges::find(rows, std::pair<int, int>{type.code, type.bits}, &Row::first);
  return found == rows.end() ? std::nullopt : std::optional(found->second);
}

/// Views what a producer describes, without ownership. What is out of the ordinary is left to `from_dlpack`,
/// which explains it.
std::optional<Tensor> view_of(const DLTensor& tensor) {
  const std::optional<DType> dtype = dtype_from(tensor.dtype);
  const bool on_host = tensor.device.device_type == kDLCPU || tensor.device.device_type == kDLCUDAHost;
  const bool on_gpu = tensor.device.device_type == kDLCUDA && backend_kind() == BackendKind::cuda;
  if (!dtype || (!on_host && !on_gpu) || tensor.ndim > max_dimensions) return std::nullopt;
  auto* const data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(*dtype) != 0) return std::nullopt;
  const auto rank = static_cast<std::size_t>(tensor.ndim);
  const std::span<const std::int64_t> sizes(tensor.shape, rank);
  LayoutPtr layout = tensor.strides == nullptr
                         ? make_layout(*dtype, sizes)
                         : make_layout(*dtype, sizes, std::span<const std::int64_t>(tensor.strides, rank));
  return Tensor(
      TensorView(data, std::move(layout), on_host ? Device::host() : Device(tensor.device.device_id)));
}

/// The struct of DLPack 1.x, whatever headers there are.
struct Versioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(Versioned*);
  std::uint64_t flags;
  DLTensor tensor;
};
constexpr std::uint64_t read_only_flag = 1;

Tensor take_over(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), versioned_name) != 0) {
    auto* const managed = PyCapsule_GetPointer(capsule.ptr(), versioned_name);
    Tensor tensor = from_dlpack_versioned(static_cast<DLManagedTensorVersioned*>(managed));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return tensor;
  }
  auto* const managed = PyCapsule_GetPointer(capsule.ptr(), plain_name);
  if (managed == nullptr) throw nb::python_error();
  Tensor tensor = from_dlpack(static_cast<DLManagedTensor*>(managed));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  return tensor;
}

const DLTensor* described(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), versioned_name) != 0) {
    const auto* const managed = static_cast<Versioned*>(PyCapsule_GetPointer(capsule.ptr(), versioned_name));
    // Memory that may not be written to must be refused as an output: a tensor that owns its memory knows.
    return managed->major == 1 && (managed->flags & read_only_flag) == 0 ? &managed->tensor : nullptr;
  }
  if (PyCapsule_IsValid(capsule.ptr(), plain_name) == 0) return nullptr;
  return &static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), plain_name))->dl_tensor;
}

/// Calls the deleter of a capsule that nobody has taken.
template <class Managed>
void delete_capsule(PyObject* capsule, const char* name) {
  if (PyCapsule_IsValid(capsule, name) == 0) return;
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  managed->deleter(managed);
}
void delete_plain(PyObject* capsule) {
  delete_capsule<DLManagedTensor>(capsule, plain_name);
}
void delete_versioned(PyObject* capsule) {
  delete_capsule<Versioned>(capsule, versioned_name);
}

/// Returns whether tutti records what is queued on the current stream of the device.
bool is_captured(Device device) {
  if (device.index() == current_device()) return is_current_stream_capturing();
  const DeviceGuard guard(device);
  return is_current_stream_capturing();
}

}  // namespace

nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer) {
  if (versioned) {
    return nb::steal(PyCapsule_New(to_dlpack_versioned(tensor, consumer), versioned_name, delete_versioned));
  }
  return nb::steal(PyCapsule_New(to_dlpack(tensor, consumer), plain_name, delete_plain));
}

Kind Kind::of(nb::handle object) {
  Kind kind;
  if (!nb::isinstance<Tensor>(object)) kind.library_ = &library_of(object);
  return kind;
}

bool Kind::is_own() const noexcept {
  return library_ == nullptr || !library_->wrapping.is_valid();
}

nb::object Kind::wrap(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  const bool is_on_host = tensor.device().is_host();
  if (is_own() || (!is_on_host && backend_kind() == BackendKind::host)) return nb::cast(tensor);
  if (library_->is_torch) return library_->wrapping(to_capsule(tensor, false, nullptr));
  if (!is_on_host && library_->holds == Library::Holds::host) return nb::cast(tensor);
  if (is_on_host && library_->holds == Library::Holds::devices) {
    const nb::object& wrapping = library_->wrapping_on_host;
    return wrapping.is_valid() ? wrapping(nb::cast(tensor)) : nb::cast(tensor);
  }
  return library_->wrapping(nb::cast(tensor));
}

std::optional<Stream> Kind::current_stream(Device device) const {
  if (is_own() || device.is_host() || backend_kind() != BackendKind::cuda) return std::nullopt;
  if (!library_->current_stream.is_valid() || is_captured(device)) return std::nullopt;
  if (library_->exchange != nullptr) return library_->exchange->stream_of(device);
  return StreamArgument{library_->current_stream(device.index())}.get(device);
}

Operand borrow_tensor(nb::handle object, const char* name, Order order) {
  if (!object.is_valid() || object.is_none()) return {};
  if (nb::isinstance<Tensor>(object)) return {nb::cast<Tensor>(object), nb::borrow(object)};
  const Library& library = library_of(object);
  if (library.is_torch) require_resolved(object, name);
  if (library.exchange != nullptr && order == Order::of_library) {
    const std::optional<DLTensor> description = library.exchange->description_of(object);
    std::optional<Tensor> view = description ? view_of(*description) : std::nullopt;
    if (view) return {std::move(*view), nb::borrow(object)};
  }
  nb::object capsule = capsule_of(object, library, name, order);
  const DLTensor* const description = described(capsule);
  if (description != nullptr) {
    if (std::optional<Tensor> view = view_of(*description)) return {std::move(*view), std::move(capsule)};
  }
  return {take_over(capsule), nb::borrow(object)};
}

Tensor own_tensor(nb::handle object, const char* name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor>(object);
  const Library& library = library_of(object);
  if (library.is_torch) require_resolved(object, name);
  return take_over(capsule_of(object, library, name, Order::of_tutti));
}

}  // namespace tutti::python
