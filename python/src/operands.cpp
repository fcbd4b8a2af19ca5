// SPDX-License-Identifier: Apache-2.0
#include "operands.hpp"

#include "interrupts.hpp"
#include "tutti/dlpack.hpp"
#include "tutti/error.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <ranges>
#include <string>
#include <string_view>
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

bool is_sequence(nb::handle object) {
  return nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object);
}

bool holds_sequences(nb::handle object) {
  return nb::len(object) > 0 && is_sequence(object[0]);
}

/// Python objects that other threads have dropped.
struct Graveyard {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};
Graveyard& graveyard() {
  static auto* const graveyard = new Graveyard;  // kept for threads that outlive static objects
  return *graveyard;
}

thread_local Work* current_work = nullptr;

/// Queues a copy between host memory and a virtual device; the work owns a share in `owner`, which has the
/// host memory.
void queue_copy(const Tensor& device, void* host, nb::handle owner, bool to_device) {
  const std::size_t bytes = device.nbytes();
  if (bytes == 0) return;
  using virtual_devices::Access;
  const Access access{device.data(), bytes, to_device ? Access::Use::write : Access::Use::read};
  const auto kept = shared_object(owner);
  const Stream stream = current_stream(device.device());
  device.record_stream(stream);
  virtual_devices::launch(stream, to_device ? "copy from host" : "copy to host", std::span(&access, 1),
                          [=](std::span<void* const> addresses) {
                            static_cast<void>(kept);
                            if (to_device) {
                              std::memcpy(addresses[0], host, bytes);
                            } else {
                              std::memcpy(host, addresses[0], bytes);
                            }
                          });
}

bool may_queue(const Operand& host) {
  return current_work != nullptr && host.tensor.is_contiguous() && backend_kind() == BackendKind::host;
}

void copy_in(const Operand& host, const Tensor& device) {
  if (may_queue(host)) return queue_copy(device, host.tensor.data(), host.object, true);
  const nb::gil_scoped_release release;
  device.copy_(host.tensor);
}

void wait_for_stream_of(const Tensor& tensor) {
  const Stream stream = current_stream(tensor.device());
  wait_interruptibly([stream] { stream.synchronize(); });
}

void copy_out(const Tensor& device, const Operand& host) {
  if (may_queue(host) && !host.tensor.is_read_only()) {
    return queue_copy(device, host.tensor.data(), host.object, false);
  }
  wait_for_stream_of(device);
  const nb::gil_scoped_release release;
  host.tensor.copy_(device);
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

std::shared_ptr<void> shared_object(nb::handle object) {
  return {nb::borrow(object).release().ptr(), [](void* last) {
            const std::lock_guard lock(graveyard().mutex);
            graveyard().objects.push_back(static_cast<PyObject*>(last));
          }};
}

void bury() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard lock(graveyard().mutex);
    objects.swap(graveyard().objects);
  }
  for (PyObject* const object : objects) nb::handle(object).dec_ref();
}

Work* Work::current() noexcept {
  return current_work;
}

void Work::enter() {
  outer_ = std::exchange(current_work, this);
}

void Work::leave() {
  current_work = std::exchange(outer_, nullptr);
  for (const Stream& stream : streams_) events_.push_back(std::make_shared<Event>(stream.record_event()));
  streams_.clear();
}

void Work::add(Device device) {
  const Stream stream = current_stream(device);
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
}

void Work::wait() const {
  for (const std::shared_ptr<Event>& event : events_) wait_interruptibly([event] { event->synchronize(); });
  bury();
}

bool Work::is_done() const {
  return std::ranges::all_of(events_, [](const std::shared_ptr<Event>& event) { return event->query(); });
}

CurrentStreams::~CurrentStreams() {
  while (!guards_.empty()) guards_.pop_back();
}

void CurrentStreams::add(const Stream& stream) {
  const Device device(current_device());
  guards_.push_back(std::make_unique<StreamGuard>(stream));
  set_device(device);
}

Operands::Operands(std::vector<Device> members) : members_(std::move(members)) {
  bury();
}
Operands::~Operands() = default;

Device Operands::member(std::size_t index) const {
  return index < members_.size() ? members_[index] : Device::host();
}

Tensor Operands::staged(const Operand& host, Device device, Use use) {
  for (Staged& known : staged_) {
    if (known.host.tensor.data() != host.tensor.data() || known.device.device() != device) continue;
    if (!(*known.host.tensor.layout() == *host.tensor.layout())) continue;
    known.is_written = known.is_written || use != Use::read;
    return known.device;
  }
  const Tensor copy = empty(host.tensor.sizes(), {.dtype = host.tensor.dtype(), .device = device});
  if (use != Use::write) copy_in(host, copy);
  staged_.push_back({host, copy, use != Use::read});
  if (Work::current() != nullptr) Work::current()->add(device);
  return copy;
}

Tensor Operands::tensor(nb::handle given, std::size_t index, Use use, const char* name) {
  if (!given.is_valid() || given.is_none()) return {};
  if (!std::exchange(has_kind_, true)) kind_ = Kind::of(given);
  held_.push_back(borrow_tensor(given, name));
  const Tensor& tensor = held_.back().tensor;
  const Device device = member(index);
  const bool is_elsewhere = tensor.defined() && tensor.device().is_host() && !device.is_host();
  return is_elsewhere ? staged(held_.back(), device, use) : tensor;
}

std::vector<Tensor> Operands::tensors(const TensorsArgument& given, Use use, const char* name) {
  if (!given.object.is_valid() || given.object.is_none()) return {};
  is_list_ = is_list_ || is_sequence(given.object);
  if (!is_sequence(given.object)) return {tensor(given.object, 0, use, name)};
  std::vector<Tensor> tensors;
  for (const nb::handle one : given.object) tensors.push_back(tensor(one, tensors.size(), use, name));
  return tensors;
}

std::vector<std::vector<Tensor>> Operands::lists(const TensorsArgument& given, Use use, const char* name) {
  if (!given.object.is_valid() || given.object.is_none()) return {};
  if (!is_sequence(given.object)) {
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + " is one tensor, expected a list of tensors");
  }
  const auto list_of = [&](nb::handle list, std::size_t index) {
    std::vector<Tensor> tensors;
    for (const nb::handle one : list) tensors.push_back(tensor(one, index, use, name));
    return tensors;
  };
  is_list_ = members_.size() != 1 || holds_sequences(given.object);
  if (!is_list_) return {list_of(given.object, 0)};
  std::vector<std::vector<Tensor>> lists;
  for (const nb::handle list : given.object) lists.push_back(list_of(list, lists.size()));
  return lists;
}

void Operands::make_current(const StreamsArgument& streams) {
  const std::vector<nb::object> given = streams.each();
  if (!given.empty() && given.size() != members_.size()) {
    throw Error(ErrorCode::invalid_argument, "streams has " + std::to_string(given.size()) +
                                                 " streams, expected " + std::to_string(members_.size()) +
                                                 ": one for each device");
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    std::optional<Stream> stream;
    if (given.empty()) {
      stream = kind_.current_stream(members_[i]);
    } else if (!given[i].is_none()) {
      stream = StreamArgument{given[i]}.get(members_[i]);
    }
    if (!stream) continue;
    if (!staged_.empty()) stream->wait_stream(current_stream(members_[i]));  // copies of operands are there
    current_.add(*stream);
  }
}

void Operands::finish() {
  for (const Staged& one : staged_) {
    if (!one.is_written) continue;
    if (Work::current() != nullptr) Work::current()->add(one.device.device());
    copy_out(one.device, one.host);
  }
}

nb::object Operands::result(const Tensor& tensor) {
  if (!tensor.defined()) return nb::none();
  if (kind_.is_own() || staged_.empty()) return kind_.wrap(tensor);
  wait_for_stream_of(tensor);
  Tensor host;
  {
    const nb::gil_scoped_release release;
    host = tensor.to(Device::host());
  }
  return kind_.wrap(host);
}

nb::object Operands::list(const std::vector<Tensor>& tensors) {
  nb::list list;
  for (const Tensor& tensor : tensors) list.append(result(tensor));
  return std::move(list);
}

nb::object Operands::results(std::vector<Tensor> tensors) {
  if (!is_list_ && tensors.size() == 1) return result(tensors.front());
  return list(tensors);
}

nb::object Operands::results(std::vector<std::vector<Tensor>> lists) {
  if (!is_list_ && lists.size() == 1) return list(lists.front());
  nb::list all;
  for (const std::vector<Tensor>& one : lists) all.append(list(one));
  return std::move(all);
}

}  // namespace tutti::python
