// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/driver_function.hpp"

#include "backend/cuda/cuda_error.hpp"

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

namespace {

#if CUDART_VERSION >= 12050
cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPointByVersion(name, function, 12000, cudaEnableDefault, found);
}
#else
cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  return cudaGetDriverEntryPoint(name, function, cudaEnableDefault, found);
}
#endif

}  // namespace

void* driver_function(const char* name) noexcept {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = forget(find(name, &function, &found));
  return status == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace tutti::backend::cuda
