// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <cstdint>
#include <optional>

#include <dlpack/dlpack.h>
#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// The struct of DLPack 1.x, whatever headers there are.
struct Versioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(Versioned*);
  std::uint64_t flags;
  DLTensor tensor;
};
inline constexpr std::uint64_t read_only_flag = 1;

/// C functions of a library of tensors, by which its objects are described and made without calls of Python
/// (DLPack 1.2 and later). None of them orders streams. The struct is that of the specification, whatever
/// headers there are.
struct ExchangeApi {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeApi* older;
  void* allocate;
  int (*export_managed)(void* object, Versioned** out);
  int (*import_managed)(Versioned* tensor, void** object);
  int (*view)(void* object, DLTensor* out);
  int (*current_stream)(DLDeviceType type, std::int32_t device, void** out);

  /// Returns the functions for objects of a type; nullptr if the type has none, or of another version.
  static const ExchangeApi* of(nb::handle type);

  /// Describes an object, which must live as long as the description is used. Returns nothing if it cannot be
  /// described so. The description does not tell whether the memory is read-only.
  [[nodiscard]] std::optional<DLTensor> description_of(nb::handle object) const;
  /// Exports an object, with a share in its memory, whose flags tell whether it is read-only.
  [[nodiscard]] Versioned* exported(nb::handle object) const;
  /// Makes an object of the library, which takes the tensor over.
  [[nodiscard]] nb::object imported(Versioned* tensor) const;
  /// Returns the native handle of the library's current stream of a GPU.
  [[nodiscard]] void* stream_of(Device device) const;
};

}  // namespace tutti::python
