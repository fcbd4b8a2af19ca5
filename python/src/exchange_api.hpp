// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <cstdint>
#include <optional>

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// C functions of a library of tensors, by which its objects are described without calls of Python
/// (DLPack 1.2 and later). The struct is that of the specification, whatever headers there are.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* older;
  void* allocate;
  void* export_managed;
  void* import_managed;
  int (*view)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType type, std::int32_t device, void** out);

  /// Returns the functions for objects of a type; nullptr if the type has none, or of another version.
  static const ExchangeApi* of(nb::handle type);

  /// Describes an object, which must live as long as the description is used. Returns nothing if it cannot be
  /// described so.
  [[nodiscard]] std::optional<DLTensor> description_of(nb::handle object) const;
  /// Returns the library's current stream of a GPU.
  [[nodiscard]] std::optional<Stream> stream_of(Device device) const;
};

}  // namespace tutti::python
