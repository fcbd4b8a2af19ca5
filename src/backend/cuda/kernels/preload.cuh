// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include <cuda_runtime_api.h>

/// Loads kernels' machine code before they are launched (see `preload_fan_out` and the others).
namespace tutti::backend::cuda {

/// Returns the address by which the runtime knows a kernel.
template <class... Arguments>
const void* kernel_address(void (*kernel)(Arguments...)) {
  return reinterpret_cast<const void*>(kernel);
}

inline cudaError_t first_failure(std::initializer_list<cudaError_t> results) {
  for (const cudaError_t result : results) {
    if (result != cudaSuccess) return result;
  }
  return cudaSuccess;
}

/// Loads kernels to the current device, by asking for their attributes.
inline cudaError_t preload_all(std::initializer_list<const void*> kernels) {
  cudaFuncAttributes attributes;
  for (const void* kernel : kernels) {
    const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
