// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels.hpp"
#include "backend/cuda/preload.cuh"
#include "backend/philox.hpp"

#include <algorithm>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int threads_per_block = 256;
constexpr int blocks_per_multiprocessor = 8;

/// One block of the generator, aligned so that it is stored at once.
template <class T>
struct alignas(random_elements_per_block<T> * sizeof(T)) RandomBlock {
  T elements[random_elements_per_block<T>];
};

/// What the kernel needs of a `RandomFill`.
struct RandomParameters {
  std::uint64_t count;
  std::uint64_t seed;
  std::uint64_t offset;
  const std::uint64_t* state;  ///< nullptr for none
  double first;
  double second;
};

template <class T, Distribution Kind>
__global__ void __launch_bounds__(threads_per_block)
    random_kernel(T* target, const RandomParameters parameters) {
  constexpr std::uint64_t per_block = random_elements_per_block<T>;
  const std::uint64_t blocks = (parameters.count + per_block - 1) / per_block;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t seed = parameters.state != nullptr ? parameters.state[0] : parameters.seed;
  const std::uint64_t first_block =
      (parameters.offset + (parameters.state != nullptr ? parameters.state[1] : 0)) / 4;
  const bool aligned = reinterpret_cast<std::uintptr_t>(target) % sizeof(RandomBlock<T>) == 0;
  for (std::uint64_t k = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < blocks; k += threads) {
    RandomBlock<T> block;
    if constexpr (Kind == Distribution::uniform) {
      uniform_block<T>(seed, first_block + k, parameters.first, parameters.second, block.elements);
    } else {
      normal_block<T>(seed, first_block + k, parameters.first, parameters.second, block.elements);
    }
    const std::uint64_t start = k * per_block;
    if (aligned && start + per_block <= parameters.count) {
      *reinterpret_cast<RandomBlock<T>*>(target + start) = block;
    } else {
#pragma unroll
      for (std::uint64_t i = 0; i < per_block; ++i) {
        if (start + i < parameters.count) target[start + i] = block.elements[i];
      }
    }
  }
}

template <class T>
cudaError_t launch(LaunchSite where, const RandomFill& task) {
  constexpr std::uint64_t per_block = random_elements_per_block<T>;
  RandomParameters parameters{task.count, task.seed, task.offset, task.state, task.first, task.second};
  T* target = reinterpret_cast<T*>(task.target);
  void* arguments[] = {&target, &parameters};
  const std::uint64_t generator_blocks = (task.count + per_block - 1) / per_block;
  const std::uint64_t wanted = (generator_blocks + threads_per_block - 1) / threads_per_block;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(
      wanted, static_cast<std::uint64_t>(where.multiprocessors) * blocks_per_multiprocessor));
  const auto kernel = task.distribution == Distribution::uniform ? &random_kernel<T, Distribution::uniform>
                                                                 : &random_kernel<T, Distribution::normal>;
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads_per_block),
                          arguments, 0, where.stream);
}

template <class T>
cudaError_t preload() {
  return preload_all({kernel_address(random_kernel<T, Distribution::uniform>),
                      kernel_address(random_kernel<T, Distribution::normal>)});
}

}  // namespace

cudaError_t preload_random_fill() {
  return first_failure({preload<Float16>(), preload<BFloat16>(), preload<float>(), preload<double>()});
}

cudaError_t launch_random_fill(LaunchSite where, const RandomFill& task) {
  if (task.count == 0) return cudaSuccess;
  switch (task.dtype) {
    case DType::float16:
      return launch<Float16>(where, task);
    case DType::bfloat16:
      return launch<BFloat16>(where, task);
    case DType::float32:
      return launch<float>(where, task);
    case DType::float64:
      return launch<double>(where, task);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tutti::backend::cuda
