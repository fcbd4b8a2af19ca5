// SPDX-License-Identifier: Apache-2.0
#include "foreign_tensors.hpp"

#include "arguments.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <ranges>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include <dlpack/dlpack.h>
#include <nanobind/stl/string.h>

namespace tutti::python {
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

/// Describes a library of tensors; found once for each.
struct Library {
  nb::object module;
  nb::object wrapping;
  nb::object unwrapping;  ///< of torch: a tensor to a capsule
  bool is_torch = false;
};

/// Looks through the bases, as a class that derives from a library's is one of its own.
Library find_library(nb::handle type) {
  for (const nb::handle base : nb::tuple(type.attr("__mro__"))) {
    const std::string name = top_module(base);
    nb::object module = loaded_module(name);
    if (!module.is_valid() || !nb::hasattr(module, "from_dlpack")) continue;
    if (name != "torch") return {module, module.attr("from_dlpack"), {}, false};
    const nb::object functions = nb::module_::import_("torch.utils.dlpack");
    return {module, nb::module_::import_("torch._C").attr("_from_dlpack"), functions.attr("to_dlpack"), true};
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

nb::object capsule_of(nb::handle object, const Library& library, const char* name) {
  if (library.is_torch) {
    const bool has_gradient = nb::cast<bool>(object.attr("requires_grad"));
    return library.unwrapping(has_gradient ? object.attr("detach")() : nb::borrow(object));
  }
  const nb::object method = nb::getattr(object, "__dlpack__", nb::none());
  if (method.is_none()) {
    throw Error(ErrorCode::invalid_argument, std::string(name) + " is " +
                                                 nb::cast<std::string>(nb::repr(object.type())) +
                                                 ", expected a tensor: an object with __dlpack__");
  }
  try {
    return method(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return method();
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

}  // namespace

nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer) {
  if (versioned) {
    return nb::steal(PyCapsule_New(to_dlpack_versioned(tensor, consumer), versioned_name, delete_versioned));
  }
  return nb::steal(PyCapsule_New(to_dlpack(tensor, consumer), plain_name, delete_plain));
}

Kind Kind::of(nb::handle object) {
  Kind kind;
  if (nb::isinstance<Tensor>(object)) return kind;
  const Library& library = library_of(object);
  kind.module_ = library.module;
  kind.wrapping_ = library.wrapping;
  kind.is_torch_ = library.is_torch;
  return kind;
}

nb::object Kind::wrap(const Tensor& tensor) const {
  if (!tensor.defined()) return nb::none();
  if (is_own() || (!tensor.device().is_host() && backend_kind() == BackendKind::host))
    return nb::cast(tensor);
  if (is_torch_) return wrapping_(to_capsule(tensor, false, nullptr));
  return wrapping_(nb::cast(tensor));
}

std::optional<Stream> Kind::current_stream(Device device) const {
  if (is_own() || device.is_host() || backend_kind() != BackendKind::cuda) return std::nullopt;
  if (is_torch_) {
    const nb::object handle = module_.attr("_C").attr("_cuda_getCurrentRawStream")(device.index());
    return ExternalStream(reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle)), device);
  }
  if (!nb::hasattr(module_, "cuda")) return std::nullopt;
  const nb::object cuda = module_.attr("cuda");
  if (!nb::hasattr(cuda, "get_current_stream")) return std::nullopt;
  return StreamArgument{cuda.attr("get_current_stream")(device.index())}.get(device);
}

Operand borrow_tensor(nb::handle object, const char* name) {
  if (!object.is_valid() || object.is_none()) return {};
  if (nb::isinstance<Tensor>(object)) return {nb::cast<Tensor>(object), nb::borrow(object)};
  nb::object capsule = capsule_of(object, library_of(object), name);
  const DLTensor* const description = described(capsule);
  if (description != nullptr) {
    if (std::optional<Tensor> view = view_of(*description)) return {std::move(*view), std::move(capsule)};
  }
  return {take_over(capsule), nb::borrow(object)};
}

Tensor own_tensor(nb::handle object, const char* name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor>(object);
  return take_over(capsule_of(object, library_of(object), name));
}

}  // namespace tutti::python
