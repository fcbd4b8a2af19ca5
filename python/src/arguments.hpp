// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"

#include <optional>
#include <vector>

#include <nanobind/nanobind.h>

/// Arguments that Python programs may give in several forms. An argument keeps the object, and is converted
/// when the call asks for its value, so that errors are the library's own.
namespace tutti::python {

namespace nb = nanobind;

/// A device: None for the current one, an index, a name, a `Device`, or an object with `type` and `index`
/// (`torch.device`).
struct DeviceArgument {
  nb::object object;
  [[nodiscard]] Device get() const;
};

/// An element type: a `DType`, its name, or another library's object whose text ends in the name
/// (`torch.float32`).
struct DTypeArgument {
  nb::object object;
  [[nodiscard]] DType get() const;
  /// Returns nothing for None.
  [[nodiscard]] std::optional<DType> optional() const;
};

/// An operation: None for the sum, a name, or a `ReduceOp`.
struct OperationArgument {
  nb::object object;
  [[nodiscard]] ReduceOp get() const;
};

/// A stream: a `Stream`, an object with `__cuda_stream__` or `cuda_stream`, or a native handle as a number.
struct StreamArgument {
  nb::object object;
  [[nodiscard]] Stream get(Device device) const;
};

/// Several streams: None for none, one, or a list.
struct StreamsArgument {
  nb::object object;
  [[nodiscard]] std::vector<nb::object> each() const;
};

/// Several devices: None for all, or a list.
struct DevicesArgument {
  nb::object object;
  [[nodiscard]] std::vector<Device> get() const;
};

/// A tensor of any library that speaks DLPack, or a list of them.
struct TensorsArgument {
  nb::object object;
};

/// A time in seconds.
struct PatienceArgument {
  nb::object object;
};

}  // namespace tutti::python

namespace nanobind::detail {

/// Takes any object as it is; `signature` says in the stubs what it may be.
#define TUTTI_PYTHON_ARGUMENT(Argument, signature)                                              \
  template <>                                                                                   \
  struct type_caster<tutti::python::Argument> {                                                 \
    NB_TYPE_CASTER(tutti::python::Argument, const_name(signature))                              \
    bool from_python(handle source, std::uint8_t, cleanup_list*) noexcept {                     \
      value.object = borrow(source);                                                            \
      return true;                                                                              \
    }                                                                                           \
    static handle from_cpp(const tutti::python::Argument&, rv_policy, cleanup_list*) noexcept { \
      return {};                                                                                \
    }                                                                                           \
  };

TUTTI_PYTHON_ARGUMENT(DeviceArgument, "Device | int | str | None")
TUTTI_PYTHON_ARGUMENT(DTypeArgument, "DType | str | None")
TUTTI_PYTHON_ARGUMENT(OperationArgument, "ReduceOp | str | None")
TUTTI_PYTHON_ARGUMENT(StreamArgument, "typing.Any")
TUTTI_PYTHON_ARGUMENT(StreamsArgument, "typing.Any")
TUTTI_PYTHON_ARGUMENT(DevicesArgument, "typing.Any")
TUTTI_PYTHON_ARGUMENT(TensorsArgument, "typing.Any")
TUTTI_PYTHON_ARGUMENT(PatienceArgument, "float")

#undef TUTTI_PYTHON_ARGUMENT

}  // namespace nanobind::detail
