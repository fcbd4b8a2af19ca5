// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "interrupts.hpp"
#include "operands.hpp"
#include "tutti/error.hpp"
#include "tutti/rng.hpp"
#include "tutti/tensor.hpp"

#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

using Sizes = std::vector<std::int64_t>;

/// Waits for the tensor's stream so that Ctrl-C can end the wait, which a copy to the host would not let it.
void wait_for(const Tensor& tensor) {
  if (tensor.device().is_host()) return;
  const Stream stream = current_stream(tensor.device());
  wait_interruptibly([stream] { stream.synchronize(); });
}

Tensor on_host(const Tensor& tensor) {
  wait_for(tensor);
  const nb::gil_scoped_release release;
  return tensor.to(Device::host()).contiguous();
}

template <class T>
nb::object value_of(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return nb::steal(
        PyComplex_FromDoubles(static_cast<double>(value.real()), static_cast<double>(value.imag())));
  } else if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
    return nb::cast(value);
  } else {
    return nb::cast(static_cast<double>(static_cast<float>(value)));
  }
}
template <>
nb::object value_of<double>(const std::byte* bytes) {
  double value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return nb::cast(value);
}

nb::object value_at(const Tensor& tensor, std::int64_t index) {
  return visit_dtype(tensor.dtype(), [&]<class T>() {
    return value_of<T>(static_cast<const std::byte*>(tensor.data()) +
                       static_cast<std::size_t>(index) * sizeof(T));
  });
}

/// Makes nested lists of the elements from `next` on.
nb::object nested(const Tensor& tensor, int dimension, std::int64_t& next) {
  if (dimension == tensor.dim()) return value_at(tensor, next++);
  nb::list list;
  for (std::int64_t i = 0; i < tensor.size(dimension); ++i) list.append(nested(tensor, dimension + 1, next));
  return std::move(list);
}

nb::object to_list(const Tensor& tensor) {
  const Tensor host = on_host(tensor);
  std::int64_t next = 0;
  return nested(host, 0, next);
}

nb::object item(const Tensor& tensor) {
  if (tensor.numel() != 1) {
    throw Error(ErrorCode::invalid_argument,
                "Tensor.item: the tensor has " + std::to_string(tensor.numel()) + " elements, expected 1");
  }
  return value_at(on_host(tensor), 0);
}

nb::tuple tuple_of(std::span<const std::int64_t> values) {
  nb::list list;
  for (const std::int64_t value : values) list.append(value);
  return nb::tuple(list);
}

/// Values of nested lists, in order, with their sizes.
struct Values {
  Sizes sizes;
  std::vector<double> real;
  std::vector<std::int64_t> whole;
  bool is_real = false;
  bool is_bool = true;

  void add(nb::handle value) {
    is_bool = is_bool && nb::isinstance<nb::bool_>(value);
    is_real = is_real || nb::isinstance<nb::float_>(value);
    real.push_back(nb::cast<double>(value));
    whole.push_back(is_real ? 0 : nb::cast<std::int64_t>(value));
  }
  void add(nb::handle value, std::size_t depth) {
    if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value)) return add(value);
    const auto length = static_cast<std::int64_t>(nb::len(value));
    if (sizes.size() == depth) sizes.push_back(length);
    if (sizes[depth] != length) {
      throw Error(ErrorCode::invalid_argument, "tensor: a list has " + std::to_string(length) +
                                                   " elements, expected " + std::to_string(sizes[depth]) +
                                                   ", as the first one has");
    }
    for (const nb::handle one : value) add(one, depth + 1);
  }
};

Tensor tensor_of_values(nb::handle data, std::optional<DType> dtype, Device device) {
  Values values;
  values.add(data, 0);
  const DType natural = values.is_real                           ? DType::float32
                        : values.is_bool && !values.real.empty() ? DType::boolean
                        : values.real.empty()                    ? DType::float32
                                                                 : DType::int64;
  const TensorOptions options{.dtype = dtype.value_or(natural), .device = device};
  const nb::gil_scoped_release release;
  if (values.is_real) return tensor(values.real, IntList(values.sizes), options);
  return tensor(values.whole, IntList(values.sizes), options);
}

/// Copies on tutti's current streams, in the order of the stream that the source's library has current.
void copy_from(const Operand& source, const Kind& kind, const Tensor& target, Blocking blocking) {
  const Device device = source.tensor.device();
  const std::optional<Stream> theirs = kind.current_stream(device);
  {
    const nb::gil_scoped_release release;
    if (theirs) current_stream(device).wait_stream(*theirs);
    target.copy_(source.tensor, blocking);
    if (theirs) theirs->wait_stream(current_stream(device));
  }
  keep_unordered({source});
}

Tensor make_tensor(const TensorsArgument& data, const DTypeArgument& dtype, const DeviceArgument& device) {
  const Device place = device.object.is_none() ? Device::host() : device.get();
  const bool has_tensor = nb::isinstance<Tensor>(data.object) || nb::hasattr(data.object, "__dlpack__");
  if (!has_tensor) return tensor_of_values(data.object, dtype.optional(), place);
  const Operand given = borrow_tensor(data.object, "data", Order::of_library);
  const Device target = device.object.is_none() ? given.tensor.device() : place;
  const Tensor copy = empty_like(given.tensor, {.dtype = dtype.optional(), .device = target});
  copy_from(given, Kind::of(data.object), copy, Blocking::yes);
  return copy;
}

TensorOptions options_of(const DTypeArgument& dtype, const DeviceArgument& device, bool pin_memory) {
  return {.dtype = dtype.optional(),
          .device = device.object.is_none() ? Device::host() : device.get(),
          .host_memory = pin_memory ? HostMemory::pinned : HostMemory::pageable};
}

/// Adds a function that makes a tensor of given sizes.
template <class Function>
void bind_maker(nb::module_& module, const char* name, const char* text, Function make) {
  module.def(
      name,
      [make](const Sizes& sizes, const DTypeArgument& dtype, const DeviceArgument& device, bool pin_memory) {
        return make(sizes, options_of(dtype, device, pin_memory));
      },
      nb::arg("size"), nb::kw_only(), nb::arg("dtype") = nb::none(), nb::arg("device") = nb::none(),
      nb::arg("pin_memory") = false, text);
}

/// Reads the stream of a consumer, where DLPack means the legacy default stream by None and 1.
Stream consumer_of(nb::handle stream, Device device) {
  const bool is_default =
      stream.is_none() || (nb::isinstance<nb::int_>(stream) && nb::cast<std::int64_t>(stream) == 1);
  return is_default ? default_stream(device) : StreamArgument{nb::borrow(stream)}.get(device);
}

nb::object dlpack(const Tensor& tensor, nb::object stream, nb::object max_version, nb::object,
                  nb::object copy) {
  if (nb::isinstance<nb::bool_>(copy) && nb::cast<bool>(copy)) {
    throw Error(ErrorCode::unsupported, "Tensor.__dlpack__: copy is True, expected False or None");
  }
  const bool versioned = !max_version.is_none() && nb::cast<int>(max_version[0]) >= 1;
  const bool is_unordered = nb::isinstance<nb::int_>(stream) && nb::cast<std::int64_t>(stream) == -1;
  if (tensor.device().is_host() || is_unordered) return to_capsule(tensor, versioned, nullptr);
  const Stream consumer = consumer_of(stream, tensor.device());
  return to_capsule(tensor, versioned, &consumer);
}

std::pair<int, int> dlpack_device(const Tensor& tensor) {
  constexpr int cpu = 1;
  constexpr int cuda = 2;
  constexpr int extension = 12;
  const bool on_gpus = is_initialized() && backend_kind() == BackendKind::cuda;
  if (tensor.device().is_host()) return {cpu, 0};  // pinned or not, as other libraries take no other
  return {on_gpus ? cuda : extension, tensor.device().index()};
}

Tensor moved(const Tensor& tensor, nb::handle target, bool non_blocking) {
  const bool is_dtype = nb::isinstance<DType>(target);
  if (is_dtype) return tensor.to(nb::cast<DType>(target));
  const Device device = DeviceArgument{nb::borrow(target)}.get();
  if (device.is_host() && !non_blocking) wait_for(tensor);
  const nb::gil_scoped_release release;
  return tensor.to(device, non_blocking ? Blocking::no : Blocking::yes);
}

void bind_description(nb::class_<Tensor>& tensors) {
  tensors
      .def_prop_ro(
          "shape", [](const Tensor& tensor) { return tuple_of(tensor.sizes()); }, "Sizes, in elements.")
      .def(
          "stride", [](const Tensor& tensor) { return tuple_of(tensor.strides()); }, "Strides, in elements.")
      .def_prop_ro("dtype", &Tensor::dtype)
      .def_prop_ro("device", &Tensor::device)
      .def_prop_ro("ndim", &Tensor::dim)
      .def_prop_ro("nbytes", &Tensor::nbytes, "Bytes of all elements.")
      .def("numel", &Tensor::numel, "The number of elements.")
      .def("data_ptr", [](const Tensor& tensor) { return reinterpret_cast<std::uintptr_t>(tensor.data()); })
      .def("is_contiguous", &Tensor::is_contiguous)
      .def("is_pinned", &Tensor::is_pinned)
      .def("__len__",
           [](const Tensor& tensor) {
             return static_cast<std::size_t>(tensor.dim() == 0 ? 0 : tensor.size(0));
           })
      .def("__repr__", [](const Tensor& tensor) {
        wait_for(tensor);
        const nb::gil_scoped_release release;
        return to_string(tensor);
      });
}

void bind_values(nb::class_<Tensor>& tensors) {
  tensors
      .def("tolist", &to_list,
           "The elements as nested lists, or a number. Waits for the device's current stream.")
      .def("item", &item, "The value of a tensor with one element.")
      .def(
          "tobytes",
          [](const Tensor& tensor) {
            const Tensor host = on_host(tensor);
            return nb::bytes(host.data(), host.nbytes());
          },
          "The elements' bytes in index order.")
      .def(
          "numpy",
          [](const Tensor& tensor) {
            return nb::module_::import_("numpy").attr("from_dlpack")(nb::cast(on_host(tensor)));
          },
          "A numpy array: of the same memory if the tensor is contiguous on the host, else a copy.")
      .def(
          "copy_",
          [](nb::object self, const TensorsArgument& source, bool non_blocking) {
            const Operand given = borrow_tensor(source.object, "source", Order::of_library);
            copy_from(given, Kind::of(source.object), nb::cast<const Tensor&>(self),
                      non_blocking ? Blocking::no : Blocking::yes);
            return self;
          },
          nb::arg("source"), nb::arg("non_blocking") = false,
          "Copies values in, across devices and element types.")
      .def(
          "fill_",
          [](nb::object self, double value) {
            nb::cast<const Tensor&>(self).fill_(value);
            return self;
          },
          nb::arg("value"))
      .def("zero_", [](nb::object self) {
        nb::cast<const Tensor&>(self).fill_(0);
        return self;
      });
}

void bind_views(nb::class_<Tensor>& tensors) {
  tensors
      .def("to", &moved, nb::arg("target"), nb::arg("non_blocking") = false,
           "On another device, or of another element type; the tensor itself if it is so already.")
      .def("cpu", [](const Tensor& tensor) { return moved(tensor, nb::cast(Device::host()), false); })
      .def("contiguous", [](const Tensor& tensor) { return tensor.contiguous(); })
      .def("narrow", &Tensor::narrow, nb::arg("dim"), nb::arg("start"), nb::arg("length"),
           "A part that shares memory.")
      .def(
          "view", [](const Tensor& tensor, const Sizes& sizes) { return tensor.view(IntList(sizes)); },
          nb::arg("size"), "The same elements with other sizes, sharing memory; one size may be -1.")
      .def("transpose", &Tensor::transpose, nb::arg("dim0"), nb::arg("dim1"))
      .def("pin_memory", &Tensor::pin_memory)
      .def(
          "record_stream",
          [](const Tensor& tensor, const StreamArgument& stream) {
            tensor.record_stream(stream.get(tensor.device()));
          },
          nb::arg("stream"), "Tells the allocator that the stream uses this memory.")
      .def("__dlpack__", &dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(),
           nb::arg("copy") = nb::none())
      .def("__dlpack_device__", &dlpack_device);
}

void bind_random_fills(nb::class_<Tensor>& tensors) {
  tensors
      .def(
          "uniform_",
          [](nb::object self, double low, double high) {
            uniform_(nb::cast<const Tensor&>(self), low, high);
            return self;
          },
          nb::arg("low") = 0.0, nb::arg("high") = 1.0, "Draws from [low, high).")
      .def(
          "normal_",
          [](nb::object self, double mean, double deviation) {
            normal_(nb::cast<const Tensor&>(self), mean, deviation);
            return self;
          },
          nb::arg("mean") = 0.0, nb::arg("std") = 1.0)
      .def(
          "random_",
          [](nb::object self, std::int64_t low, std::int64_t high) {
            random_(nb::cast<const Tensor&>(self), low, high);
            return self;
          },
          nb::arg("low"), nb::arg("high"), "Draws integers from [low, high).")
      .def(
          "bernoulli_",
          [](nb::object self, double probability) {
            bernoulli_(nb::cast<const Tensor&>(self), probability);
            return self;
          },
          nb::arg("p") = 0.5);
}

}  // namespace

void bind_tensors(nb::module_& module) {
  nb::class_<Tensor> tensors(
      module, "Tensor",
      "An array on a device or on the host. Other libraries take it by DLPack without a copy, except "
      "where it is on a virtual device, whose memory tutti alone can reach: there, copy it with `cpu()`.");
  bind_description(tensors);
  bind_values(tensors);
  bind_views(tensors);
  bind_random_fills(tensors);
  bind_maker(module, "empty", "A tensor with uninitialised memory.",
             [](const Sizes& sizes, const TensorOptions& options) { return empty(IntList(sizes), options); });
  bind_maker(module, "zeros", "A tensor of zeros.",
             [](const Sizes& sizes, const TensorOptions& options) { return zeros(IntList(sizes), options); });
  bind_maker(module, "ones", "A tensor of ones.",
             [](const Sizes& sizes, const TensorOptions& options) { return ones(IntList(sizes), options); });
  bind_maker(module, "rand", "A tensor on a device, drawn uniformly from [0, 1).",
             [](const Sizes& sizes, const TensorOptions& options) { return rand(IntList(sizes), options); });
  bind_maker(module, "randn", "A tensor on a device, drawn from a normal distribution.",
             [](const Sizes& sizes, const TensorOptions& options) { return randn(IntList(sizes), options); });
  module.def(
      "full",
      [](const Sizes& sizes, double value, const DTypeArgument& dtype, const DeviceArgument& device) {
        return full(IntList(sizes), value, options_of(dtype, device, false));
      },
      nb::arg("size"), nb::arg("fill_value"), nb::kw_only(), nb::arg("dtype") = nb::none(),
      nb::arg("device") = nb::none(), "A tensor of one value.");
  module.def("tensor", &make_tensor, nb::arg("data"), nb::kw_only(), nb::arg("dtype") = nb::none(),
             nb::arg("device") = nb::none(),
             "A tensor of values, which are copied: nested lists of numbers, or an array of any library.");
  module.def(
      "from_dlpack", [](const TensorsArgument& object) { return own_tensor(object.object, "object"); },
      nb::arg("object"), "A tensor that shares the memory of another library's array.");
}

}  // namespace tutti::python
