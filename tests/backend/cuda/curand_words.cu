// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/curand_words.hpp"

#include <cuda_runtime.h>
#include <curand_kernel.h>

namespace tutti::test {
namespace {

__global__ void draw_words(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset,
                           std::size_t count, std::uint32_t* words) {
  curandStatePhilox4_32_10_t state;
  curand_init(seed, subsequence, offset, &state);
  for (std::size_t i = 0; i < count; ++i) words[i] = curand(&state);
}

}  // namespace

std::vector<std::uint32_t> curand_words(std::uint64_t seed, std::uint64_t subsequence, std::uint64_t offset,
                                        std::size_t count) {
  std::uint32_t* on_device = nullptr;
  if (cudaMalloc(&on_device, count * sizeof(std::uint32_t)) != cudaSuccess) return {};
  draw_words<<<1, 1>>>(seed, subsequence, offset, count, on_device);
  std::vector<std::uint32_t> words(count);
  const cudaError_t status =
      cudaMemcpy(words.data(), on_device, count * sizeof(std::uint32_t), cudaMemcpyDeviceToHost);
  cudaFree(on_device);
  if (status != cudaSuccess) words.clear();
  return words;
}

}  // namespace tutti::test
