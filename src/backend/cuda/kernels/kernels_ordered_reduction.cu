// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/ordered_reduction_kernel.cuh"
#include "backend/cuda/kernels/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

cudaError_t launch_ordered_reduction(LaunchSite where, const OrderedReduction& task,
                                     const TableArgument& table, const TableShape& shape) {
  if (shape.tile_count == 0) return cudaSuccess;
  return visit_reduced(task.dtype, [&]<class T>() {
    return visit_reduction_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      return launch_sum_kernel(kernel_address(ordered_reduction_kernel<Reducer<T>, Table>), where, task,
                               argument, shape);
    });
  });
}

cudaError_t preload_ordered_reduction() {
  return preload_reduced([&]<class T>() {
    return preload_all(
        {kernel_address(ordered_reduction_kernel<Reducer<T>, ParameterTable<medium_parameter_table>>),
         kernel_address(ordered_reduction_kernel<Reducer<T>, MemoryTable>)});
  });
}

}  // namespace tutti::backend::cuda
