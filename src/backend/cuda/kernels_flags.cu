#include "backend/cuda/device_words.cuh"
#include "backend/cuda/kernels.hpp"
#include "backend/cuda/preload.cuh"

#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

/// Work queued before has completed when this kernel runs; the release makes it visible beyond the device.
__global__ void set_flag_kernel(std::uint32_t* flag, std::uint32_t value) {
  __threadfence_system();
  SystemWord(*flag).store(value, ::cuda::memory_order_release);
}

}  // namespace

cudaError_t preload_flags() {
  return preload_all({kernel_address(set_flag_kernel)});
}

cudaError_t launch_set_flag(LaunchSite where, SharedFlag& flag, std::uint32_t value) {
  std::uint32_t* word = word_of(flag.value);
  void* arguments[] = {&word, &value};
  return cudaLaunchKernel(kernel_address(set_flag_kernel), dim3(1), dim3(1), arguments, 0, where.stream);
}

}  // namespace tutti::backend::cuda
