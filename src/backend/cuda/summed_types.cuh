// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/arithmetic.hpp"
#include "backend/cuda/segment_tables.hpp"

#include <cstdint>

#include <cuda_runtime_api.h>

/// The types that kernels for sums are compiled for.
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

}  // namespace tutti::backend::cuda
