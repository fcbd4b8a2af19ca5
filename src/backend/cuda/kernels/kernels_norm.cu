// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"
#include "backend/numbers/norm.hpp"

#include <algorithm>

#include <cuda_runtime.h>

/// Measures and scales vectors. A block takes one tile after another.
namespace tutti::backend::cuda {

namespace {

constexpr int blocks_per_multiprocessor = 8;

/// The pieces that travel in a kernel's parameters, of which there are 4 KiB.
constexpr std::uint32_t most_norm_pieces = 160;

struct PieceTable {
  std::uint32_t pieces;
  std::uint32_t tiles;
  std::byte* addresses[most_norm_pieces];
  std::uint64_t counts[most_norm_pieces];
  std::uint32_t first_tiles[most_norm_pieces];
};

/// Elements that are loaded at once.
template <class T>
struct alignas(16) NormVector {
  typename SumOf<T>::Storage elements[norm_width<T>];
};

/// The elements of one tile.
template <class T>
struct NormTile {
  typename SumOf<T>::Storage* elements;
  std::uint32_t count;
  bool is_aligned;

  [[nodiscard]] __device__ std::uint32_t whole_rows() const { return is_aligned ? count / norm_lanes<T> : 0; }
  [[nodiscard]] __device__ NormVector<T>* vector(std::uint32_t row) const {
    return reinterpret_cast<NormVector<T>*>(elements + row * norm_lanes<T> + threadIdx.x * norm_width<T>);
  }
};

template <class T>
__device__ NormTile<T> tile_of(const PieceTable& table, std::uint32_t tile) {
  std::uint32_t low = 0;
  std::uint32_t high = table.pieces;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (table.first_tiles[middle] <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  constexpr std::uint64_t tile_elements = norm_tile_bytes / sizeof(T);
  const std::uint64_t begin = (tile - table.first_tiles[low]) * tile_elements;
  const std::uint64_t left = table.counts[low] - begin;
  auto* const elements = reinterpret_cast<typename SumOf<T>::Storage*>(table.addresses[low]) + begin;
  return {elements, static_cast<std::uint32_t>(left < tile_elements ? left : tile_elements),
          reinterpret_cast<std::uintptr_t>(elements) % sizeof(NormVector<T>) == 0};
}

/// Calls `work(index, element)` for this thread's elements of the rows from `row` on, one by one; `index` is
/// the place within the thread's vector.
template <class T, class Work>
__device__ void for_each_single(const NormTile<T>& tile, std::uint32_t row, const Work& work) {
  for (std::uint32_t begin = row * norm_lanes<T>; begin < tile.count; begin += norm_lanes<T>) {
#pragma unroll
    for (std::uint32_t i = 0; i < norm_width<T>; ++i) {
      const std::uint32_t at = begin + threadIdx.x * norm_width<T> + i;
      if (at < tile.count) work(i, tile.elements[at]);
    }
  }
}

/// Adds the upper half to the lower one until one sum is left.
template <unsigned Lanes>
__device__ void halve(double* sums) {
  __syncthreads();
  for (unsigned half = Lanes / 2; half > 0; half /= 2) {
    for (unsigned i = threadIdx.x; i < half; i += norm_threads) sums[i] += sums[i + half];
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(norm_threads)
    square_sums_kernel(const __grid_constant__ PieceTable table, double* result) {
  constexpr unsigned width = norm_width<T>;
  __shared__ double sums[norm_lanes<T>];
  for (std::uint32_t number = blockIdx.x; number < table.tiles; number += gridDim.x) {
    const NormTile<T> tile = tile_of<T>(table, number);
    double own[width] = {};
    const std::uint32_t rows = tile.whole_rows();
#pragma unroll 4
    for (std::uint32_t row = 0; row < rows; ++row) {
      const NormVector<T> vector = *tile.vector(row);
#pragma unroll
      for (unsigned i = 0; i < width; ++i) own[i] += square<T>(vector.elements[i]);
    }
    for_each_single(tile, rows, [&](std::uint32_t i, auto& element) { own[i] += square<T>(element); });
#pragma unroll
    for (unsigned i = 0; i < width; ++i) sums[threadIdx.x * width + i] = own[i];
    halve<norm_lanes<T>>(sums);
    if (threadIdx.x == 0) result[number] = canonical(sums[0]);
    __syncthreads();
  }
}

template <class T>
__global__ void __launch_bounds__(norm_threads)
    scale_kernel(const __grid_constant__ PieceTable table, const double* factor_place) {
  const double factor = *factor_place;
  if (factor == 1) return;
  for (std::uint32_t number = blockIdx.x; number < table.tiles; number += gridDim.x) {
    const NormTile<T> tile = tile_of<T>(table, number);
    const std::uint32_t rows = tile.whole_rows();
#pragma unroll 4
    for (std::uint32_t row = 0; row < rows; ++row) {
      NormVector<T> vector = *tile.vector(row);
#pragma unroll
      for (unsigned i = 0; i < norm_width<T>; ++i) vector.elements[i] = scaled<T>(vector.elements[i], factor);
      *tile.vector(row) = vector;
    }
    for_each_single(tile, rows, [&](std::uint32_t, auto& element) { element = scaled<T>(element, factor); });
  }
}

__global__ void __launch_bounds__(norm_threads) norm_of_sums_kernel(const NormOfSums task) {
  __shared__ double sums[norm_threads];
  double own = 0;
#pragma unroll 8
  for (std::uint64_t i = threadIdx.x; i < task.count; i += norm_threads) own += task.sums[i];
  sums[threadIdx.x] = own;
  halve<norm_threads>(sums);
  if (threadIdx.x != 0) return;
  const double total = canonical(sums[0]);
  task.result[0] = task.is_last ? canonical(sqrt(total)) : total;
  if (task.is_last) task.result[1] = clip_factor(task.result[0], task.max_norm);
}

/// Calls `launch(table, tiles before it)` for each table that the pieces fill.
template <class Launch>
cudaError_t for_each_table(const NormPieces& task, const Launch& launch) {
  PieceTable table{};
  std::uint64_t tiles_before = 0;
  cudaError_t status = cudaSuccess;
  const auto flush = [&] {
    if (table.tiles != 0 && status == cudaSuccess) status = launch(table, tiles_before);
    tiles_before += table.tiles;
    table.pieces = table.tiles = 0;
  };
  for (const NormPiece& piece : task.pieces) {
    if (piece.count == 0) continue;
    if (table.pieces == most_norm_pieces) flush();
    table.addresses[table.pieces] = piece.address;
    table.counts[table.pieces] = piece.count;
    table.first_tiles[table.pieces] = table.tiles;
    table.tiles += static_cast<std::uint32_t>(norm_tiles(task.dtype, piece.count));
    ++table.pieces;
  }
  flush();
  return status;
}

cudaError_t launch(LaunchSite where, const void* kernel, const PieceTable& table, void* place) {
  void* arguments[] = {const_cast<PieceTable*>(&table), &place};
  const auto most = static_cast<unsigned>(where.multiprocessors) * blocks_per_multiprocessor;
  return cudaLaunchKernel(kernel, dim3(std::min(table.tiles, most)), dim3(norm_threads), arguments, 0,
                          where.stream);
}

template <class T>
cudaError_t preload() {
  return preload_all({kernel_address(square_sums_kernel<T>), kernel_address(scale_kernel<T>)});
}

}  // namespace

cudaError_t preload_norms() {
  return first_failure({preload_all({kernel_address(norm_of_sums_kernel)}), preload<Float16>(),
                        preload<BFloat16>(), preload<float>(), preload<double>(), preload<Float8E4M3>(),
                        preload<Float8E5M2>()});
}

cudaError_t launch_square_sums(LaunchSite where, const NormPieces& task, double* sums) {
  return visit_real(task.dtype, cudaErrorInvalidValue, [&]<class T>() {
    return for_each_table(task, [&](const PieceTable& table, std::uint64_t tiles_before) {
      return launch(where, kernel_address(square_sums_kernel<T>), table, sums + tiles_before);
    });
  });
}

cudaError_t launch_scale(LaunchSite where, const NormPieces& task, const double* factor) {
  return visit_real(task.dtype, cudaErrorInvalidValue, [&]<class T>() {
    return for_each_table(task, [&](const PieceTable& table, std::uint64_t) {
      return launch(where, kernel_address(scale_kernel<T>), table, const_cast<double*>(factor));
    });
  });
}

cudaError_t launch_norm_of_sums(LaunchSite where, const NormOfSums& task) {
  NormOfSums argument = task;
  void* arguments[] = {&argument};
  return cudaLaunchKernel(kernel_address(norm_of_sums_kernel), dim3(1), dim3(norm_threads), arguments, 0,
                          where.stream);
}

}  // namespace tutti::backend::cuda
