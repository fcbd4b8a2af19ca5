// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/mpi_types.hpp"

namespace tutti::perf {

MPI_Datatype moved_type(DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return MPI_UINT8_T;
    case 2:
      return MPI_UINT16_T;
    case 4:
      return MPI_UINT32_T;
    case 8:
      return MPI_UINT64_T;
    default:
      return MPI_C_DOUBLE_COMPLEX;
  }
}

MPI_Datatype summable_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
      return MPI_C_BOOL;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::int16:
      return MPI_INT16_T;
    case DType::uint16:
      return MPI_UINT16_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::uint32:
      return MPI_UINT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint64:
      return MPI_UINT64_T;
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::complex64:
      return MPI_C_FLOAT_COMPLEX;
    case DType::complex128:
      return MPI_C_DOUBLE_COMPLEX;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op operation_of(DType dtype, ReduceKind kind) {
  const bool is_bool = dtype == DType::boolean;
  switch (kind) {
    case ReduceKind::sum:
      return is_bool ? MPI_LOR : MPI_SUM;
    case ReduceKind::min:
      return is_bool ? MPI_LAND : MPI_MIN;
    case ReduceKind::max:
      return is_bool ? MPI_LOR : MPI_MAX;
    case ReduceKind::prod:
      return is_bool ? MPI_LAND : MPI_PROD;
    case ReduceKind::band:
      return is_bool ? MPI_LAND : MPI_BAND;
    case ReduceKind::bor:
      return is_bool ? MPI_LOR : MPI_BOR;
    case ReduceKind::bxor:
      return is_bool ? MPI_LXOR : MPI_BXOR;
    case ReduceKind::avg:
    case ReduceKind::premul_sum:
    case ReduceKind::compiled:
      break;
  }
  return MPI_OP_NULL;
}

}  // namespace tutti::perf
