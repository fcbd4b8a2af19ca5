// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/ordered_reduction_kernel.cuh"
#include "backend/cuda/kernels/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

cudaError_t launch_ordered_sum(LaunchSite where, const OrderedReduction& task, const TableArgument& table,
                               const TableShape& shape) {
  if (shape.tile_count == 0) return cudaSuccess;
  return visit_summed(task.dtype, [&]<class T>() {
    return visit_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      return launch_sum_kernel(kernel_address(ordered_reduction_kernel<Summing<T>, Table>), where, task,
                               argument, shape);
    });
  });
}

cudaError_t preload_ordered_sum() {
  return preload_summed([&]<class T>() {
    return preload_all(
        {kernel_address(ordered_reduction_kernel<Summing<T>, ParameterTable<small_parameter_table>>),
         kernel_address(ordered_reduction_kernel<Summing<T>, ParameterTable<medium_parameter_table>>),
         kernel_address(ordered_reduction_kernel<Summing<T>, ParameterTable<large_parameter_table>>),
         kernel_address(ordered_reduction_kernel<Summing<T>, MemoryTable>)});
  });
}

}  // namespace tutti::backend::cuda
