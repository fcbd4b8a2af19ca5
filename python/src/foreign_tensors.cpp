// SPDX-License-Identifier: Apache-2.0
#include "foreign_tensors.hpp"

#include "arguments.hpp"
#include "exchange_api.hpp"
#include "shared_object.hpp"
#include "tutti/device.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
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
  bool is_immutable = false;  ///< nothing may be written to its tensors, although DLPack does not say so
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
          .is_torch = true};
}

/// Looks through the bases, as a class that derives from a library's is one of its own.
Library find_library(nb::handle type) {
  for (const nb::handle base : nb::tuple(type.attr("__mro__"))) {
    const std::string name = top_module(base);
    if (name == "jaxlib") {
      return {.wrapping = attribute(loaded_module("jax"), {"dlpack", "from_dlpack"}), .is_immutable = true};
    }
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
  Library library = find_library(type);
  library.exchange = ExchangeApi::of(type);
  type.inc_ref();  // so that no other type takes its address
  return libraries->emplace(type.ptr(), std::move(library)).first->second;
}

/// Returns false for one element.
bool is_plainly_dense(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return tensor.ndim > 0;
  std::int64_t dense = 1;
  for (std::int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.strides[i] != dense) return false;
    dense *= tensor.shape[i];
  }
  return dense > 1;
}

/// Refuses tensors of torch whose memory holds other values than they have: torch conjugates and negates
/// lazily. Negated are the imaginary parts of conjugates, which are strided or one element.
void require_resolved(nb::handle tensor, const DLTensor& description, const char* name) {
  const bool is_complex = description.dtype.code == kDLComplex;
  if (!is_complex && (description.dtype.code != kDLFloat || is_plainly_dense(description))) return;
  const bool is_conjugated = nb::cast<bool>(tensor.attr("is_conj")());
  if (!is_conjugated && !nb::cast<bool>(tensor.attr("is_neg")())) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(name) + " is a lazily " + (is_conjugated ? "conjugated" : "negated") +
                  " tensor of torch, expected one that is not, such as `resolve_conj()` "
                  "and `resolve_neg()` return");
}

bool has_streams(const Library& library) {
  return library.exchange != nullptr || library.current_stream.is_valid();
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
  if (order == Order::of_library && has_streams(library)) return nb::int_(-1);
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

/// Takes memory over that may not be written to, whether its capsule can say so or not.
Tensor take_over_immutable(nb::handle capsule) {
  if (PyCapsule_IsValid(capsule.ptr(), versioned_name) != 0) {
    static_cast<Versioned*>(PyCapsule_GetPointer(capsule.ptr(), versioned_name))->flags |= read_only_flag;
    return take_over(capsule);
  }
  auto* const plain = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), plain_name));
  if (plain == nullptr) throw nb::python_error();
  const auto release = [](Versioned* versioned) {
    auto* const inner = static_cast<DLManagedTensor*>(versioned->context);
    if (inner->deleter != nullptr) inner->deleter(inner);
    delete versioned;
  };
  auto versioned =
      std::make_unique<Versioned>(Versioned{1, 0, plain, release, read_only_flag, plain->dl_tensor});
  Tensor tensor = from_dlpack_versioned(reinterpret_cast<DLManagedTensorVersioned*>(versioned.get()));
  static_cast<void>(versioned.release());
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

void* current_handle(const Library& library, Device device) {
  if (library.exchange != nullptr) return library.exchange->stream_of(device);
  return StreamArgument{library.current_stream(device.index())}.get(device).native_handle();
}

bool is_tensor_of_tutti(nb::handle object) {
  static const PyTypeObject* const type = reinterpret_cast<PyTypeObject*>(nb::type<Tensor>().ptr());
  return Py_TYPE(object.ptr()) == type || nb::isinstance<Tensor>(object);
}

/// Views what torch's functions describe, without a share in it: the object keeps it. Torch knows no
/// read-only memory, of which a description does not tell.
std::optional<Operand> described_by_torch(nb::handle object, const Library& library, const char* name) {
  if (!library.is_torch || library.exchange == nullptr) return std::nullopt;
  const std::optional<DLTensor> description = library.exchange->description_of(object);
  if (!description) return std::nullopt;
  require_resolved(object, *description, name);
  std::optional<Tensor> view = view_of(*description);
  if (!view) return std::nullopt;
  return Operand{std::move(*view), nb::borrow(object)};
}

nb::object capsule_for_call(nb::handle object, const Library& library, const char* name, Order order) {
  const bool by_exchange = library.exchange != nullptr && !library.is_torch && order == Order::of_library;
  if (!by_exchange) return capsule_of(object, library, name, order);
  return nb::steal(PyCapsule_New(library.exchange->exported(object), versioned_name, delete_versioned));
}

Operand borrow_from(const Library& library, nb::handle object, const char* name, Order order) {
  if (order == Order::of_library) {
    if (std::optional<Operand> operand = described_by_torch(object, library, name))
      return std::move(*operand);
  }
  nb::object capsule = capsule_for_call(object, library, name, order);
  if (library.is_immutable) return {take_over_immutable(capsule), nb::borrow(object)};
  const DLTensor* const description = described(capsule);
  if (description != nullptr) {
    if (library.is_torch) require_resolved(object, *description, name);
    if (std::optional<Tensor> view = view_of(*description)) return {std::move(*view), std::move(capsule)};
  }
  return {take_over(capsule), nb::borrow(object)};
}

/// Calls pinned memory plain host memory: torch and numpy take no other.
void set_host_device(DLTensor& tensor) {
  if (tensor.device.device_type == kDLCUDAHost) tensor.device.device_type = kDLCPU;
}

Versioned* export_versioned(const Tensor& tensor, const Stream* consumer) {
  auto* const managed = reinterpret_cast<Versioned*>(to_dlpack_versioned(tensor, consumer));
  set_host_device(managed->tensor);
  return managed;
}

DLManagedTensor* export_plain(const Tensor& tensor, const Stream* consumer) {
  DLManagedTensor* const managed = to_dlpack(tensor, consumer);
  set_host_device(managed->dl_tensor);
  return managed;
}

thread_local int own_streams = 0;

}  // namespace

nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer) {
  if (versioned) {
    return nb::steal(PyCapsule_New(export_versioned(tensor, consumer), versioned_name, delete_versioned));
  }
  return nb::steal(PyCapsule_New(export_plain(tensor, consumer), plain_name, delete_plain));
}

Kind Kind::of(nb::handle object) {
  Kind kind;
  if (!is_tensor_of_tutti(object)) kind.origin_ = &library_of(object);
  return kind;
}

bool Kind::is_own() const noexcept {
  return origin_ == nullptr || !origin_->wrapping.is_valid();
}

nb::object Kind::wrap(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  const bool is_on_host = tensor.device().is_host();
  if (is_own() || (!is_on_host && backend_kind() == BackendKind::host)) return nb::cast(tensor);
  if (origin_->is_torch && origin_->exchange != nullptr) {
    return origin_->exchange->imported(export_versioned(tensor, nullptr));
  }
  if (origin_->is_torch) return origin_->wrapping(to_capsule(tensor, false, nullptr));
  if (!is_on_host && origin_->holds == Library::Holds::host) return nb::cast(tensor);
  if (is_on_host && origin_->holds == Library::Holds::devices) {
    const nb::object& wrapping = origin_->wrapping_on_host;
    return wrapping.is_valid() ? wrapping(nb::cast(tensor)) : nb::cast(tensor);
  }
  nb::object own = nb::cast(tensor);
  try {
    return origin_->wrapping(own);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
  }
  return own;
}

OwnStreams::OwnStreams() noexcept {
  ++own_streams;
}
OwnStreams::~OwnStreams() {
  --own_streams;
}

std::optional<Stream> Kind::current_stream(Device device) const {
  if (is_own() || device.is_host() || own_streams > 0 || backend_kind() != BackendKind::cuda)
    return std::nullopt;
  if (!has_streams(*origin_)) return std::nullopt;
  void* const handle = current_handle(*origin_, device);
  const Stream own = tutti::current_stream(device);
  if (handle == own.native_handle() || is_captured(own)) return std::nullopt;
  return ExternalStream(handle, device);
}

Operand borrow_tensor(nb::handle object, const char* name, Order order) {
  if (!object.is_valid() || object.is_none()) return {};
  if (is_tensor_of_tutti(object)) return {nb::cast<const Tensor&>(object), nb::borrow(object)};
  const Library& library = library_of(object);
  Operand operand = borrow_from(library, object, name, order);
  operand.is_unordered = !has_streams(library) && !operand.tensor.device().is_host();
  return operand;
}

nb::object share_in_memory(nb::handle object) {
  if (PyCapsule_CheckExact(object.ptr()) != 0 || is_tensor_of_tutti(object)) return nb::borrow(object);
  return capsule_of(object, library_of(object), "tensor", Order::of_tutti);
}

Tensor own_tensor(nb::handle object, const char* name) {
  if (is_tensor_of_tutti(object)) return nb::cast<const Tensor&>(object);
  const Library& library = library_of(object);
  const nb::object capsule = capsule_of(object, library, name, Order::of_tutti);
  const DLTensor* const description = described(capsule);
  if (library.is_torch && description != nullptr) require_resolved(object, *description, name);
  return library.is_immutable ? take_over_immutable(capsule) : take_over(capsule);
}

}  // namespace tutti::python
