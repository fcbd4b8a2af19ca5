// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/device_words.cuh"
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"

#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

/// Waits in one thread, which asks its own clock how long it waits: so it ends whatever the host does.
__global__ void __launch_bounds__(1)
    wait_kernel(std::uint32_t* flag, std::uint64_t longest, std::uint32_t* outcome) {
  const SystemWord word(*flag);
  const std::uint64_t start = nanoseconds();
  bool has_come = false;
  do {
    has_come = word.load(::cuda::memory_order_acquire) != 0;
  } while (!has_come && nanoseconds() - start < longest);
  SystemWord(*outcome).store(has_come ? 1 : 2, ::cuda::memory_order_release);
}

}  // namespace

cudaError_t preload_wait() {
  return preload_all({kernel_address(wait_kernel)});
}

cudaError_t launch_wait(LaunchSite where, std::uint32_t* flag, std::uint64_t longest,
                        std::uint32_t* outcome) {
  void* arguments[] = {&flag, &longest, &outcome};
  return cudaLaunchKernel(kernel_address(wait_kernel), dim3(1), dim3(1), arguments, 0, where.stream);
}

}  // namespace tutti::backend::cuda
