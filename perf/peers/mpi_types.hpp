// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <mpi.h>

/// What MPI calls the element types and the reductions.
namespace tutti::perf {

/// What MPI takes elements of this type for when it only moves them.
[[nodiscard]] MPI_Datatype moved_type(DType dtype);
/// The type MPI sums; MPI_DATATYPE_NULL where it has none.
[[nodiscard]] MPI_Datatype summable_type(DType dtype);
/// MPI_OP_NULL where it has none. Of bool, sums and maxima are logical or, products and minima logical and.
[[nodiscard]] MPI_Op operation_of(DType dtype, ReduceKind kind);

}  // namespace tutti::perf
