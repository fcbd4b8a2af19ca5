// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti {

/// Whether elements of the type can be combined by the operation, as `ReduceKind` says.
[[nodiscard]] TUTTI_EXPORT bool has_operation(DType dtype, ReduceKind kind) noexcept;

}  // namespace tutti
