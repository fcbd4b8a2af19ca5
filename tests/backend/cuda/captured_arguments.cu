// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/captured_arguments.hpp"
#include "backend/cuda/kernels/team_part.cuh"

namespace tutti::test {

bool lets_next_in(cudaGraphNode_t kernel) {
  cudaKernelNodeParams node{};
  if (cudaGraphKernelNodeGetParams(kernel, &node) != cudaSuccess) return false;
  return static_cast<const backend::cuda::TeamArguments*>(node.kernelParams[1])->lets_next_in;
}

}  // namespace tutti::test
