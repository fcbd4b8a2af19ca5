// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// A share in a Python object that any thread may drop, without the GIL: the object lives on until the next
/// call of `bury`.
std::shared_ptr<void> shared_object(nb::handle object);
/// Drops the objects whose last share is gone. Needs the GIL.
void bury();

}  // namespace tutti::python
