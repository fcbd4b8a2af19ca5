// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/kernel_table.cuh"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

/// Returns the first tile of this thread's warp.
__device__ inline std::uint32_t first_tile() {
  return (blockIdx.x * blockDim.x + threadIdx.x) / warp_lanes;
}

/// Calls `work(view, entry, tile, lane)` for every tile of this thread's warp except the `skipped` first
/// ones; the grid's warps take turns.
template <class Entry, class Work>
__device__ inline void for_each_tile(const std::byte* table, const TableShape& shape, const Work& work,
                                     std::uint32_t skipped = 0) {
  const auto view = view_of<Entry>(table, shape);
  const std::uint32_t lane = threadIdx.x % warp_lanes;
  const std::uint32_t warps = gridDim.x * blockDim.x / warp_lanes;
  for (std::uint64_t tile = first_tile() + skipped * warps; tile < shape.tile_count; tile += warps) {
    const auto number = static_cast<std::uint32_t>(tile);
    work(view, find_entry(view.entries, shape, number), number, lane);
  }
}

}  // namespace tutti::backend::cuda
