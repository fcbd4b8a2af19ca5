// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"

#include <algorithm>
#include <bit>
#include <cstring>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int threads_per_block = 256;
constexpr int blocks_per_multiprocessor = 8;

/// 16 bytes of the pattern. Element sizes divide 16, so the same 16 bytes repeat from any starting point.
struct Pattern {
  std::byte bytes[16];
};

/// The range of 16-byte stores; what is before and after it is less than 16 bytes each.
struct FillShape {
  std::uint64_t head;  ///< bytes before the first vector
  std::uint64_t vectors;
  std::uint64_t bytes;  ///< in all
};

/// `pattern` starts at the target's first byte, `vector` at its first vector.
__global__ void __launch_bounds__(threads_per_block)
    fill_kernel(std::byte* target, const __grid_constant__ Pattern pattern, const uint4 vector,
                const FillShape shape) {
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  auto* vectors = reinterpret_cast<uint4*>(target + shape.head);
  for (std::uint64_t i = thread; i < shape.vectors; i += threads) vectors[i] = vector;
  if (thread < shape.head) target[thread] = pattern.bytes[thread];
  const std::uint64_t at = shape.head + shape.vectors * sizeof(uint4) + thread;
  if (at < shape.bytes) target[at] = pattern.bytes[at % sizeof(pattern.bytes)];
}

}  // namespace

cudaError_t preload_fill() {
  return preload_all({kernel_address(fill_kernel)});
}

cudaError_t launch_fill(LaunchSite where, const Fill& task) {
  FillShape shape{};
  shape.bytes = task.count * task.element_bytes;
  if (shape.bytes == 0) return cudaSuccess;
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(task.target) % sizeof(uint4);
  shape.head = std::min<std::uint64_t>((sizeof(uint4) - misaligned) % sizeof(uint4), shape.bytes);
  shape.vectors = (shape.bytes - shape.head) / sizeof(uint4);

  Pattern pattern;
  Pattern rotated;
  for (std::size_t i = 0; i < sizeof(Pattern); ++i) {
    pattern.bytes[i] = task.value[i % task.element_bytes];
    rotated.bytes[i] = task.value[(i + shape.head) % task.element_bytes];
  }
  auto vector = std::bit_cast<uint4>(rotated);
  std::byte* target = task.target;
  void* arguments[] = {&target, &pattern, &vector, &shape};
  const std::uint64_t wanted = shape.vectors / threads_per_block + 1;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(
      wanted, static_cast<std::uint64_t>(where.multiprocessors) * blocks_per_multiprocessor));
  return cudaLaunchKernel(kernel_address(fill_kernel), dim3(blocks), dim3(threads_per_block), arguments, 0,
                          where.stream);
}

}  // namespace tutti::backend::cuda
