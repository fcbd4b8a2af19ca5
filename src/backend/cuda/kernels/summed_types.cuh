// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/numbers/arithmetic.hpp"

#include <complex>
#include <cstdint>
#include <utility>

#include <cuda_runtime_api.h>

/// Lists the types that kernels for sums, and for other reductions, are compiled for.
namespace tutti::backend::cuda {

/// Calls `visitor.operator()<T>()` with the component type of `dtype`'s sums: the types `summed_as` returns,
/// no others, so that no kernel is compiled twice.
template <class Visitor>
cudaError_t visit_summed(DType dtype, Visitor&& visitor) {
  switch (summed_as(dtype)) {
    case DType::float16:
      return visitor.template operator()<Float16>();
    case DType::bfloat16:
      return visitor.template operator()<BFloat16>();
    case DType::float32:
      return visitor.template operator()<float>();
    case DType::float64:
      return visitor.template operator()<double>();
    case DType::uint8:
      return visitor.template operator()<std::uint8_t>();
    case DType::int16:
      return visitor.template operator()<std::int16_t>();
    case DType::int32:
      return visitor.template operator()<std::int32_t>();
    case DType::int64:
      return visitor.template operator()<std::int64_t>();
    case DType::boolean:
      return visitor.template operator()<bool>();
    case DType::float8_e4m3:
      return visitor.template operator()<Float8E4M3>();
    case DType::float8_e5m2:
      return visitor.template operator()<Float8E5M2>();
    default:
      return cudaErrorInvalidValue;
  }
}

/// Calls `visitor` with the element type itself, as other operations depend on signs and complex numbers;
/// with signed integers also for unsigned ones, which `ReduceArguments` marks, so that there are fewer
/// kernels.
template <class Visitor>
cudaError_t visit_reduced(DType dtype, Visitor&& visitor) {
  switch (dtype) {
    case DType::int8:
      return visitor.template operator()<std::int8_t>();
    case DType::complex64:
      return visitor.template operator()<std::complex<float>>();
    case DType::complex128:
      return visitor.template operator()<std::complex<double>>();
    default:
      return visit_summed(dtype, std::forward<Visitor>(visitor));
  }
}

/// Calls `preload.operator()<T>()` for all types of reductions. Returns the first failure.
template <class Preload>
cudaError_t preload_reduced(const Preload& preload) {
  for (const DType dtype : all_dtypes) {
    if (const cudaError_t status = visit_reduced(dtype, preload); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
