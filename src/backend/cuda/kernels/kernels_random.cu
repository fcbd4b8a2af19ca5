// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"
#include "backend/philox.hpp"

#include <algorithm>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int threads_per_block = 256;
constexpr int blocks_per_multiprocessor = 8;

/// One block of the generator, aligned so that it is stored at once.
template <class T, Distribution Kind>
struct alignas(random_elements<T, Kind> * sizeof(T)) RandomBlock {
  T elements[random_elements<T, Kind>];
};

/// The kernel's arguments from a `RandomFill`.
struct RandomParameters {
  std::uint64_t count;
  std::uint64_t seed;
  std::uint64_t offset;
  const std::uint64_t* state;  ///< nullptr for none
  double first;
  double second;
  std::int64_t low;
  std::uint64_t range;
  std::uint64_t one;  ///< its bits
};

template <class T, Distribution Kind>
__global__ void __launch_bounds__(threads_per_block)
    random_kernel(T* target, const RandomParameters parameters) {
  constexpr std::uint64_t per_block = random_elements<T, Kind>;
  const std::uint64_t blocks = (parameters.count + per_block - 1) / per_block;
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t seed = parameters.state != nullptr ? parameters.state[0] : parameters.seed;
  const std::uint64_t first_block =
      (parameters.offset + (parameters.state != nullptr ? parameters.state[1] : 0)) / 4;
  const bool aligned = reinterpret_cast<std::uintptr_t>(target) % sizeof(RandomBlock<T, Kind>) == 0;
  for (std::uint64_t k = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; k < blocks; k += threads) {
    RandomBlock<T, Kind> block;
    if constexpr (Kind == Distribution::uniform) {
      uniform_block<T>(seed, first_block + k, parameters.first, parameters.second, block.elements);
    } else if constexpr (Kind == Distribution::integers) {
      integer_block<T>(seed, first_block + k, parameters.low, parameters.range, block.elements);
    } else if constexpr (Kind == Distribution::bernoulli) {
      bernoulli_block<T>(seed, first_block + k, parameters.range, static_cast<T>(parameters.one),
                         block.elements);
    } else {
      normal_block<T>(seed, first_block + k, parameters.first, parameters.second, block.elements);
    }
    const std::uint64_t start = k * per_block;
    if (aligned && start + per_block <= parameters.count) {
      *reinterpret_cast<RandomBlock<T, Kind>*>(target + start) = block;
    } else {
#pragma unroll
      for (std::uint64_t i = 0; i < per_block; ++i) {
        if (start + i < parameters.count) target[start + i] = block.elements[i];
      }
    }
  }
}

template <class T, Distribution Kind>
cudaError_t launch(LaunchSite where, const RandomFill& task) {
  constexpr std::uint64_t per_block = random_elements<T, Kind>;
  const std::uint64_t one = Kind == Distribution::bernoulli ? bits_of_one(task.dtype) : 0;
  RandomParameters parameters{task.count,  task.seed, task.offset, task.state, task.first,
                              task.second, task.low,  task.range,  one};
  T* target = reinterpret_cast<T*>(task.target);
  void* arguments[] = {&target, &parameters};
  const std::uint64_t generator_blocks = (task.count + per_block - 1) / per_block;
  const std::uint64_t wanted = (generator_blocks + threads_per_block - 1) / threads_per_block;
  const auto blocks = static_cast<unsigned>(std::min<std::uint64_t>(
      wanted, static_cast<std::uint64_t>(where.multiprocessors) * blocks_per_multiprocessor));
  return cudaLaunchKernel(reinterpret_cast<const void*>(&random_kernel<T, Kind>), dim3(blocks),
                          dim3(threads_per_block), arguments, 0, where.stream);
}

template <class T>
cudaError_t launch_floats(LaunchSite where, const RandomFill& task) {
  return task.distribution == Distribution::uniform ? launch<T, Distribution::uniform>(where, task)
                                                    : launch<T, Distribution::normal>(where, task);
}

/// T is the unsigned type of the elements' size.
template <class T>
cudaError_t launch_bits(LaunchSite where, const RandomFill& task) {
  return task.distribution == Distribution::integers ? launch<T, Distribution::integers>(where, task)
                                                     : launch<T, Distribution::bernoulli>(where, task);
}

template <class T>
cudaError_t preload_floats() {
  return preload_all({kernel_address(random_kernel<T, Distribution::uniform>),
                      kernel_address(random_kernel<T, Distribution::normal>)});
}

template <class T>
cudaError_t preload_bits() {
  return preload_all({kernel_address(random_kernel<T, Distribution::integers>),
                      kernel_address(random_kernel<T, Distribution::bernoulli>)});
}

}  // namespace

cudaError_t preload_random_fill() {
  return first_failure({preload_floats<Float16>(), preload_floats<BFloat16>(), preload_floats<float>(),
                        preload_floats<double>(), preload_bits<std::uint8_t>(), preload_bits<std::uint16_t>(),
                        preload_bits<std::uint32_t>(), preload_bits<std::uint64_t>()});
}

cudaError_t launch_random_fill(LaunchSite where, const RandomFill& task) {
  if (task.count == 0) return cudaSuccess;
  if (task.distribution == Distribution::integers || task.distribution == Distribution::bernoulli) {
    switch (size_of(task.dtype)) {
      case 1:
        return launch_bits<std::uint8_t>(where, task);
      case 2:
        return launch_bits<std::uint16_t>(where, task);
      case 4:
        return launch_bits<std::uint32_t>(where, task);
      case 8:
        return launch_bits<std::uint64_t>(where, task);
      default:
        return cudaErrorInvalidValue;
    }
  }
  switch (task.dtype) {
    case DType::float16:
      return launch_floats<Float16>(where, task);
    case DType::bfloat16:
      return launch_floats<BFloat16>(where, task);
    case DType::float32:
      return launch_floats<float>(where, task);
    case DType::float64:
      return launch_floats<double>(where, task);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace tutti::backend::cuda
