// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels.hpp"
#include "backend/cuda/ordered_sum_tile.cuh"
#include "backend/cuda/summed_types.cuh"
#include "backend/cuda/team_kernel.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

/// Every warp finds its tile's inputs once and keeps their addresses here.
extern __shared__ const std::byte* found_inputs[];

template <class T>
struct Sums {
  using Entry = SumEntry;
  static std::size_t shared_bytes_per_warp(const TeamRound& task) {
    return sizeof(std::byte*) * task.sums.input_count;
  }
  static __device__ void run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const TeamSources& sources) {
    constexpr std::uint32_t output_count = 1;
    const std::byte** const inputs = found_inputs + threadIdx.x / warp_lanes * task.input_count;
    for (std::uint32_t i = lane; i < task.input_count; i += warp_lanes)
      inputs[i] = sources(view.pointers[entry.first_input + i]);
    __syncwarp();
    sum_tile<T>(entry, {inputs, view.pointers + entry.first_output, task.input_count, output_count}, tile,
                task.shape.gets.tile_bytes, lane);
    __syncwarp();  // before the next tile's take their place
  }
};

}  // namespace

cudaError_t launch_team_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                             const TeamShape& shape) {
  return visit_summed(task.sums.dtype,
                      [&]<class T>() { return launch_team<Sums<T>>(where, task, table, shape); });
}

cudaError_t preload_team_sums() {
  for (const DType dtype : all_dtypes) {
    const cudaError_t status = visit_summed(dtype, [&]<class T>() { return preload_team<Sums<T>>(); });
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
