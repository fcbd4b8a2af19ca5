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

/// Returns the index of the entry of this warp's first tile, if there is one. A warp that waits for something
/// else before it works has read the table by then.
template <class Entry>
__device__ inline std::uint32_t index_of_first_entry(const std::byte* table, const TableShape& shape) {
  const std::uint32_t tile = first_tile();
  return tile < shape.tile_count ? index_of_entry(view_of<Entry>(table, shape).entries, shape, tile) : 0;
}
/// Calls `work` like `for_each_tile`, by a warp that has found the first tile's entry.
template <class Entry, class Work>
__device__ inline void for_each_tile_from(std::uint32_t first_entry, const std::byte* table,
                                          const TableShape& shape, const Work& work) {
  const auto view = view_of<Entry>(table, shape);
  const std::uint32_t lane = threadIdx.x % warp_lanes;
  const std::uint32_t warps = gridDim.x * blockDim.x / warp_lanes;
  std::uint32_t entry = first_entry;
  for (std::uint64_t tile = first_tile(); tile < shape.tile_count;) {
    work(view, view.entries[entry], static_cast<std::uint32_t>(tile), lane);
    tile += warps;
    if (tile < shape.tile_count)
      entry = index_of_entry(view.entries, shape, static_cast<std::uint32_t>(tile));
  }
}

}  // namespace tutti::backend::cuda
