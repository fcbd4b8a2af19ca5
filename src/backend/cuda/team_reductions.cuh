// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/ordered_reduction_kernel.cuh"
#include "backend/cuda/team_kernel.cuh"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// Every warp finds its tile's inputs once and keeps their addresses here.
extern __shared__ const std::byte* found_inputs[];

/// The second half of a team's round that combines by `Op`.
template <class Op>
struct TeamReductions {
  using Entry = SumEntry;
  static std::size_t shared_bytes_per_warp(const TeamRound& task) {
    return sizeof(std::byte*) * task.reductions.input_count;
  }
  static __device__ void run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const TeamSources& sources) {
    constexpr std::uint32_t output_count = 1;
    const std::byte** const inputs = found_inputs + threadIdx.x / warp_lanes * task.input_count;
    for (std::uint32_t i = lane; i < task.input_count; i += warp_lanes)
      inputs[i] = sources(view.pointers[entry.first_input + i]);
    __syncwarp();
    sum_tile(operation_of<Op>(task.reducing, view.pointers), entry,
             {inputs, view.pointers + entry.first_output, task.input_count, output_count}, tile,
             task.shape.gets.tile_bytes, lane);
    __syncwarp();  // before the next tile's take their place
  }
};

}  // namespace tutti::backend::cuda
