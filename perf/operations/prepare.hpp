// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"
#include "perf/operations/payload.hpp"

/// The buffers of one call, for the collectives of one process and those between processes alike: this
/// process's part of them.
namespace tutti::perf {

/// Of a collective. `parts`: of one that moves flat parts of one tensor; else they are equal.
[[nodiscard]] Call prepare_collective(CollectiveForm form, const Case& what, Placement placement,
                                      Parts parts = Parts::equal);

/// A tensor on the root and one on the case's partner.
[[nodiscard]] Call prepare_copy(const Case& what);

/// A tensor from every member for the next one, and one from the one before.
[[nodiscard]] Call prepare_around(const Case& what);
/// No tensors.
[[nodiscard]] Call prepare_nothing(const Case& what);

}  // namespace tutti::perf
