// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/summed_types.cuh"
#include "backend/cuda/kernels/team_reductions.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

cudaError_t launch_team_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                             const TeamShape& shape) {
  return visit_summed(task.reductions.dtype, [&]<class T>() {
    return launch_team<TeamReductions<Summing<T>>>(where, task, table, shape);
  });
}

cudaError_t preload_team_sums() {
  return preload_summed([&]<class T>() { return preload_team<TeamReductions<Summing<T>>>(); });
}

}  // namespace tutti::backend::cuda
