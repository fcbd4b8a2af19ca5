// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/for_each_tile.cuh"
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/ordered_reduction_tile.cuh"
#include "backend/cuda/kernels/preload.cuh"

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// Blocks per multiprocessor: they have 24 warps, and each thread gets the registers for eight vectors in
/// flight.
inline constexpr int sum_blocks_per_multiprocessor = 3;

struct SumArguments {
  std::uint32_t inputs;
  std::uint32_t outputs;
  ReduceArguments reducing;
};

/// Returns the operation of a kernel's run.
template <class Op>
__device__ inline Op operation_of(const ReduceArguments& reducing, std::byte* const* pointers) {
  if constexpr (std::is_empty_v<Op>) {
    return {};
  } else {
    return {reducing, pointers};
  }
}

template <class Op, class Table>
__global__ void __launch_bounds__(threads_per_block, sum_blocks_per_multiprocessor)
    ordered_reduction_kernel(const __grid_constant__ Table table, const __grid_constant__ TableShape shape,
                             const SumArguments arguments) {
  for_each_tile<SumEntry>(table.data(), shape,
                          [&](const auto& view, const auto& entry, auto tile, auto lane) {
                            sum_tile(operation_of<Op>(arguments.reducing, view.pointers), entry,
                                     {view.pointers + entry.first_input, view.pointers + entry.first_output,
                                      arguments.inputs, arguments.outputs},
                                     tile, shape.tile_bytes, lane);
                          });
}

inline cudaError_t launch_sum_kernel(const void* kernel, LaunchSite where, const OrderedReduction& task,
                                     const void* table, const TableShape& shape) {
  const TileLaunch launch = launch_for(shape.tile_count, where, sum_blocks_per_multiprocessor);
  SumArguments beside{task.input_count, task.output_count, reduce_arguments(task)};
  void* arguments[] = {const_cast<void*>(table), const_cast<TableShape*>(&shape), &beside};
  return cudaLaunchKernel(kernel, launch.grid, launch.block, arguments, 0, where.stream);
}

}  // namespace tutti::backend::cuda
