// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"

#include "tutti/error.hpp"

#include <string>
#include <string_view>

#include <nanobind/stl/string.h>

namespace tutti::python {
namespace {

[[noreturn]] void refuse(const std::string& name, nb::handle given, const std::string& expected) {
  throw Error(ErrorCode::invalid_argument,
              name + " is " + nb::cast<std::string>(nb::repr(given)) + ", expected " + expected);
}

/// Reads an object like `torch.device`.
Device device_of_parts(nb::handle object) {
  const auto type = nb::cast<std::string>(nb::str(object.attr("type")));
  if (type == "cpu") return Device::host();
  const nb::object index = object.attr("index");
  return index.is_none() ? Device::current() : Device(nb::cast<int>(index));
}

std::string last_name(nb::handle object) {
  const auto text = nb::cast<std::string>(nb::str(object));
  return text.substr(text.rfind('.') + 1);
}

/// Returns the text of a string, which lives as long as the object.
std::string_view text_of(nb::handle string) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(string.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<std::size_t>(size)};
}

void* handle_of(nb::handle object) {
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object));
}

}  // namespace

Device DeviceArgument::get() const {
  if (!object.is_valid() || object.is_none()) return Device::current();
  if (nb::isinstance<nb::int_>(object)) return {nb::cast<int>(object)};
  if (nb::isinstance<Device>(object)) return nb::cast<Device>(object);
  if (nb::isinstance<nb::str>(object)) return Device::parse(nb::cast<std::string>(object));
  if (nb::hasattr(object, "type") && nb::hasattr(object, "index")) return device_of_parts(object);
  refuse("device", object, "an index, a name such as 'cuda:0' or 'cpu', a Device, or None");
}

DType DTypeArgument::get() const {
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  const std::string name = last_name(object);
  if (name == "float8_e4m3fn") return DType::float8_e4m3;
  return parse_dtype(name);
}

std::optional<DType> DTypeArgument::optional() const {
  if (!object.is_valid() || object.is_none()) return std::nullopt;
  return get();
}

ReduceOp OperationArgument::get() const {
  if (!object.is_valid() || object.is_none()) return ReduceKind::sum;
  if (nb::isinstance<nb::str>(object)) return parse_reduce_kind(text_of(object));
  if (nb::isinstance<ReduceOp>(object)) return nb::cast<ReduceOp>(object);
  refuse("op", object, "a ReduceOp or the name of one, such as 'sum'");
}

Stream StreamArgument::get(Device device) const {
  if (nb::isinstance<Stream>(object)) return nb::cast<Stream>(object);
  if (nb::isinstance<nb::int_>(object)) return ExternalStream(handle_of(object), device);
  if (nb::hasattr(object, "__cuda_stream__")) {
    return ExternalStream(handle_of(object.attr("__cuda_stream__")()[1]), device);
  }
  if (nb::hasattr(object, "cuda_stream"))
    return ExternalStream(handle_of(object.attr("cuda_stream")), device);
  if (nb::hasattr(object, "ptr")) return ExternalStream(handle_of(object.attr("ptr")), device);
  refuse("stream", object, "a Stream, an object with __cuda_stream__, or a native handle as a number");
}

std::vector<nb::object> StreamsArgument::each() const {
  if (!object.is_valid() || object.is_none()) return {};
  if (!nb::isinstance<nb::list>(object) && !nb::isinstance<nb::tuple>(object)) return {object};
  std::vector<nb::object> streams;
  for (const nb::handle stream : object) streams.push_back(nb::borrow(stream));
  return streams;
}

std::vector<Device> DevicesArgument::get() const {
  std::vector<Device> devices;
  if (!object.is_valid() || object.is_none()) {
    for (int index = 0; index < device_count(); ++index) devices.emplace_back(index);
    return devices;
  }
  for (const nb::handle device : object) devices.push_back(DeviceArgument{nb::borrow(device)}.get());
  return devices;
}

}  // namespace tutti::python
