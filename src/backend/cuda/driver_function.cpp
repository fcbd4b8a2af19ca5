#include "backend/cuda/driver_function.hpp"

#include "backend/cuda/cuda_error.hpp"

namespace tutti::backend::cuda {

void* find_driver_function(const char* name) noexcept {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t status =
      cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
#else
  const cudaError_t status = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  return forget(status) == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
}

}  // namespace tutti::backend::cuda
