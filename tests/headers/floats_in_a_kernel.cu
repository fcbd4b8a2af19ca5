// SPDX-License-Identifier: Apache-2.0
// What the float types promise to kernels, where nvcc is told of nothing but the standard.
#include "tutti/float_types.hpp"

template <typename Float>
__global__ void scale(Float* values, float factor, Float unwanted) {
  const Float scaled(static_cast<float>(values[threadIdx.x]) * factor);
  values[threadIdx.x] = scaled == unwanted ? Float{} : scaled;
}

template __global__ void scale(tutti::Float16*, float, tutti::Float16);
template __global__ void scale(tutti::BFloat16*, float, tutti::BFloat16);
template __global__ void scale(tutti::Float8E4M3*, float, tutti::Float8E4M3);
template __global__ void scale(tutti::Float8E5M2*, float, tutti::Float8E5M2);
