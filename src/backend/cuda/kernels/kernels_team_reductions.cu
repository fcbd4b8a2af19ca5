// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/summed_types.cuh"
#include "backend/cuda/kernels/team_reductions.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

cudaError_t launch_team_reductions(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                   const TeamShape& shape) {
  return visit_reduced(task.reductions.dtype, [&]<class T>() {
    using Gets = TeamReductions<Reducer<T>>;
    return visit_reduction_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      return launch_team_kernel(kernel_address(team_kernel<Gets, Table>), where, task, argument, shape,
                                Gets::shared_bytes_per_warp(task));
    });
  });
}

cudaError_t preload_team_reductions() {
  return preload_reduced([&]<class T>() {
    using Gets = TeamReductions<Reducer<T>>;
    return preload_all({kernel_address(team_kernel<Gets, ParameterTable<medium_parameter_table>>),
                        kernel_address(team_kernel<Gets, MemoryTable>)});
  });
}

}  // namespace tutti::backend::cuda
