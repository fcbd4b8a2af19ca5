// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti {

/// Returns whether the operation can combine elements of the type (see `ReduceKind`).
[[nodiscard]] TUTTI_EXPORT bool has_operation(DType dtype, ReduceKind kind) noexcept;

}  // namespace tutti
