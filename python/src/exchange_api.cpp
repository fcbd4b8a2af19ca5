// SPDX-License-Identifier: Apache-2.0
#include "exchange_api.hpp"

namespace tutti::python {

const ExchangeApi* ExchangeApi::of(nb::handle type) {
  constexpr const char* name = "dlpack_exchange_api";
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), name) == 0) return nullptr;
  const auto* const api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), name));
  const bool is_usable = api->major == 1 && api->view != nullptr && api->current_stream != nullptr;
  return is_usable ? api : nullptr;
}

std::optional<DLTensor> ExchangeApi::description_of(nb::handle object) const {
  DLTensor tensor{};
  if (view(object.ptr(), &tensor) == 0) return tensor;
  PyErr_Clear();
  return std::nullopt;
}

std::optional<Stream> ExchangeApi::stream_of(Device device) const {
  void* handle = nullptr;
  if (current_stream(kDLCUDA, device.index(), &handle) == 0) return ExternalStream(handle, device);
  PyErr_Clear();
  return std::nullopt;
}

}  // namespace tutti::python
