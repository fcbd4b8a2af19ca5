// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/low_latency_reductions.cuh"
#include "backend/cuda/kernels/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

cudaError_t launch_low_latency_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                    const TeamShape& shape) {
  return visit_summed(task.reductions.dtype, [&]<class T>() {
    return launch_low_latency<LowLatencyReductions<Summing<T>>>(where, task, table, shape);
  });
}

cudaError_t preload_low_latency_sums() {
  return preload_summed([&]<class T>() { return preload_low_latency<LowLatencyReductions<Summing<T>>>(); });
}

}  // namespace tutti::backend::cuda
