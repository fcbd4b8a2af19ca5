// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/fan_out_tile.cuh"
#include "backend/cuda/kernels/for_each_tile.cuh"
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int blocks_per_multiprocessor = 4;  // 32 warps, and up to 64 registers per thread

template <class Table>
__global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor)
    fan_out_kernel(const __grid_constant__ Table table, const __grid_constant__ TableShape shape) {
  for_each_tile<FanOutEntry>(table.data(), shape,
                             [](const auto& view, const auto& entry, auto tile, auto lane) {
                               copy_tile(entry, view.pointers, tile, lane);
                             });
}

}  // namespace

cudaError_t launch_fan_out(LaunchSite where, const TableArgument& table, const TableShape& shape) {
  if (shape.tile_count == 0) return cudaSuccess;
  const TileLaunch launch = launch_for(shape.tile_count, where, blocks_per_multiprocessor);
  return visit_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
    void* arguments[] = {const_cast<void*>(argument), const_cast<TableShape*>(&shape)};
    return cudaLaunchKernel(kernel_address(fan_out_kernel<Table>), launch.grid, launch.block, arguments, 0,
                            where.stream);
  });
}

cudaError_t preload_fan_out() {
  return preload_all({kernel_address(fan_out_kernel<ParameterTable<small_parameter_table>>),
                      kernel_address(fan_out_kernel<ParameterTable<medium_parameter_table>>),
                      kernel_address(fan_out_kernel<ParameterTable<large_parameter_table>>),
                      kernel_address(fan_out_kernel<MemoryTable>)});
}

}  // namespace tutti::backend::cuda
