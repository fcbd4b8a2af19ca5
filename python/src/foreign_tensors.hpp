// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <optional>

#include <nanobind/nanobind.h>

/// Tensors of other libraries, which are taken and given by DLPack without a copy.
namespace tutti::python {

namespace nb = nanobind;

/// The library that an object comes from, and so the kind of object that results become.
class Kind {
 public:
  Kind() = default;  ///< tutti's own
  static Kind of(nb::handle object);

  [[nodiscard]] bool is_own() const noexcept { return !module_.is_valid(); }
  /// Returns the tensor as an object of this kind, which shares its memory. A tensor on a virtual device
  /// stays a `tutti.Tensor`: no other library could hold it.
  [[nodiscard]] nb::object wrap(const Tensor& tensor) const;
  /// Returns the library's current stream of a GPU; nothing for tutti itself, and for libraries without
  /// streams.
  [[nodiscard]] std::optional<Stream> current_stream(Device device) const;

 private:
  nb::object module_{};    ///< invalid for tutti
  nb::object wrapping_{};  ///< takes an object with `__dlpack__`, or for torch a capsule
  bool is_torch_ = false;
};

/// An operand for the time of one call: it does not own its memory, which `object` does.
struct Operand {
  Tensor tensor;
  nb::object object;
};

/// Views the memory of `object`: a `tutti.Tensor`, a tensor of torch, or any object with `__dlpack__`. Throws
/// Error(invalid_argument) with `name` for anything else. None gives an undefined tensor.
Operand borrow_tensor(nb::handle object, const char* name);
/// Takes a share in the memory of `object`, for as long as the tensor lives.
Tensor own_tensor(nb::handle object, const char* name);
/// Returns a capsule, as `__dlpack__` of tutti's tensors does.
nb::object to_capsule(const Tensor& tensor, bool versioned, const Stream* consumer);

}  // namespace tutti::python
