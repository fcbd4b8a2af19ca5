// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/for_each_tile.cuh"
#include "backend/cuda/kernels.hpp"
#include "backend/cuda/ordered_sum_tile.cuh"
#include "backend/cuda/preload.cuh"
#include "backend/cuda/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int blocks_per_multiprocessor =
    3;  // 24 warps; each thread gets the registers for eight vectors in flight

struct SumCounts {
  std::uint32_t inputs;
  std::uint32_t outputs;
};

template <class T, class Table>
__global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor)
    ordered_sum_kernel(const __grid_constant__ Table table, const __grid_constant__ TableShape shape,
                       const SumCounts counts) {
  for_each_tile<SumEntry>(table.data(), shape,
                          [&](const auto& view, const auto& entry, auto tile, auto lane) {
                            sum_tile<T>(entry,
                                        {view.pointers + entry.first_input,
                                         view.pointers + entry.first_output, counts.inputs, counts.outputs},
                                        tile, shape.tile_bytes, lane);
                          });
}

}  // namespace

cudaError_t launch_ordered_sum(LaunchSite where, const OrderedSum& task, const TableArgument& table,
                               const TableShape& shape) {
  if (shape.tile_count == 0) return cudaSuccess;
  const TileLaunch launch = launch_for(shape.tile_count, where.multiprocessors, blocks_per_multiprocessor);
  SumCounts counts{task.input_count, task.output_count};
  return visit_summed(task.dtype, [&]<class T>() {
    return visit_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      void* arguments[] = {const_cast<void*>(argument), const_cast<TableShape*>(&shape), &counts};
      return cudaLaunchKernel(kernel_address(ordered_sum_kernel<T, Table>), launch.grid, launch.block,
                              arguments, 0, where.stream);
    });
  });
}

cudaError_t preload_ordered_sum() {
  for (const DType dtype : all_dtypes) {
    const cudaError_t status = visit_summed(dtype, [&]<class T>() {
      return preload_all({kernel_address(ordered_sum_kernel<T, ParameterTable<small_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, ParameterTable<medium_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, ParameterTable<large_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, MemoryTable>)});
    });
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
