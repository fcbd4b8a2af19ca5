// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// A share in a Python object that any thread may drop, without the GIL: the object lives on until the next
/// call of `bury`.
std::shared_ptr<void> shared_object(nb::handle object);
/// Keeps `share`, which owns Python objects, until work that is queued on the streams so far is over: a later
/// call of `bury` drops it. Does not keep what a capture uses, which its graph uses at every launch. Needs
/// the GIL.
void keep_while_used(std::shared_ptr<void> share, const std::vector<Stream>& streams);
[[nodiscard]] bool is_captured(const Stream& stream);
/// Drops the objects whose last share is gone, and shares that are no longer used. Needs the GIL.
void bury();

}  // namespace tutti::python
