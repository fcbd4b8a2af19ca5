// SPDX-License-Identifier: Apache-2.0
#include "exchange_api.hpp"

namespace tutti::python {

const ExchangeApi* ExchangeApi::of(nb::handle type) {
  constexpr const char* name = "dlpack_exchange_api";
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0) return nullptr;
  const auto* api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), name));
  while (api != nullptr && api->major > 1) api = api->older;
  return api != nullptr && api->major == 1 ? api : nullptr;
}

std::optional<DLTensor> ExchangeApi::description_of(nb::handle object) const {
  DLTensor tensor{};
  if (view == nullptr) return std::nullopt;
  if (view(object.ptr(), &tensor) == 0) return tensor;
  PyErr_Clear();
  return std::nullopt;
}

Versioned* ExchangeApi::exported(nb::handle object) const {
  Versioned* tensor = nullptr;
  if (export_managed(object.ptr(), &tensor) != 0) throw nb::python_error();
  return tensor;
}

nb::object ExchangeApi::imported(Versioned* tensor) const {
  void* object = nullptr;
  if (import_managed(tensor, &object) != 0) throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(object));
}

void* ExchangeApi::stream_of(Device device) const {
  void* handle = nullptr;
  if (current_stream(kDLCUDA, device.index(), &handle) != 0) throw nb::python_error();
  return handle;
}

}  // namespace tutti::python
