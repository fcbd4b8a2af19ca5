// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/numbers/arithmetic.hpp"
#include "tutti/dtype.hpp"

#include <cuda_runtime_api.h>

/// Lists the types that kernels for sums, and for other reductions, are compiled for.
namespace tutti::backend::cuda {

/// Calls `visitor.operator()<T>()` with the component type of `dtype`'s sums: the types `summed_as` returns,
/// no others, so that no kernel is compiled twice.
template <class Visitor>
cudaError_t visit_summed(DType dtype, Visitor&& visitor) {
  return visit_dtype(summed_as(dtype), [&]<class T>() -> cudaError_t {
    if constexpr (summed_as(dtype_of<T>) == dtype_of<T>) {
      return visitor.template operator()<T>();
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

/// Calls `visitor` with the element type itself, as other operations depend on signs and complex numbers;
/// with signed integers also for unsigned ones, which `ReduceArguments` marks, so that there are fewer
/// kernels.
template <class Visitor>
cudaError_t visit_reduced(DType dtype, Visitor&& visitor) {
  return visit_dtype(with_sign(dtype), [&]<class T>() -> cudaError_t {
    if constexpr (with_sign(dtype_of<T>) == dtype_of<T>) {
      return visitor.template operator()<T>();
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

/// Calls `preload.operator()<T>()` for all types of sums. Returns the first failure. `preload_reduced` does
/// so for all types of reductions.
template <class Preload>
cudaError_t preload_summed(const Preload& preload) {
  for (const DType dtype : all_dtypes) {
    if (const cudaError_t status = visit_summed(dtype, preload); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}
template <class Preload>
cudaError_t preload_reduced(const Preload& preload) {
  for (const DType dtype : all_dtypes) {
    if (const cudaError_t status = visit_reduced(dtype, preload); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
