// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/ordered_reduction_kernel.cuh"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// Addresses of the tile's operands, which every warp finds once.
extern __shared__ const std::byte* found_operands[];

/// The second half of a team's round that combines by `Op`.
template <class Op>
struct TeamReductions {
  using Entry = SumEntry;
  static constexpr bool swaps = false;
  static std::size_t shared_bytes_per_warp(const TeamRound& task) {
    const OrderedReduction& all = task.reductions;
    return sizeof(std::byte*) * (all.input_count + (all.output_count > 1 ? all.output_count : 0));
  }
  static __device__ void run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const TeamSources& sources) {
    const bool finds_outputs = task.output_count > 1;
    const std::uint32_t found = task.input_count + (finds_outputs ? task.output_count : 0);
    const std::byte** const inputs = found_operands + threadIdx.x / warp_lanes * found;
    for (std::uint32_t i = lane; i < found; i += warp_lanes) {
      inputs[i] = sources(view.pointers[i < task.input_count ? entry.first_input + i
                                                             : entry.first_output + (i - task.input_count)]);
    }
    __syncwarp();
    std::byte* const* const outputs = finds_outputs ? const_cast<std::byte* const*>(inputs + task.input_count)
                                                    : view.pointers + entry.first_output;
    sum_tile(operation_of<Op>(task.reducing, view.pointers), entry,
             {inputs, outputs, task.input_count, task.output_count}, tile, task.shape.gets.tile_bytes, lane);
    __syncwarp();  // before the next tile's take their place
  }
};

}  // namespace tutti::backend::cuda
