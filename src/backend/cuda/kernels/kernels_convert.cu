// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/preload.cuh"
#include "backend/numbers/conversion.hpp"

#include <algorithm>
#include <limits>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int threads_per_block = 256;
constexpr int blocks_per_multiprocessor = 8;

/// The array both sides share, dimensions that lie behind one another merged; the last one varies fastest.
struct StridedShape {
  int rank = 0;
  std::int64_t sizes[max_dimensions] = {};
  std::int64_t target_strides[max_dimensions] = {};
  std::int64_t source_strides[max_dimensions] = {};
  std::uint64_t count = 1;
};

StridedShape collapse(const Convert& task) {
  // The order of the dimensions is free; this one makes neighbouring threads write neighbouring elements.
  int order[max_dimensions] = {};
  int used = 0;
  StridedShape shape;
  for (int i = 0; i < task.rank; ++i) {
    const auto dimension = static_cast<std::size_t>(i);
    shape.count *= static_cast<std::uint64_t>(task.sizes[dimension]);
    if (task.sizes[dimension] != 1) order[used++] = i;
  }
  std::stable_sort(order, order + used, [&](int a, int b) {
    return task.target_strides[static_cast<std::size_t>(a)] >
           task.target_strides[static_cast<std::size_t>(b)];
  });
  for (int i = 0; i < used; ++i) {
    const auto dimension = static_cast<std::size_t>(order[i]);
    const std::int64_t size = task.sizes[dimension];
    const std::int64_t target_stride = task.target_strides[dimension];
    const std::int64_t source_stride = task.source_strides[dimension];
    const int last = shape.rank - 1;
    const bool merges = last >= 0 && shape.target_strides[last] == target_stride * size &&
                        shape.source_strides[last] == source_stride * size;
    const int place = merges ? last : shape.rank++;
    shape.sizes[place] = merges ? shape.sizes[place] * size : size;
    shape.target_strides[place] = target_stride;
    shape.source_strides[place] = source_stride;
  }
  return shape;
}

/// Positions of element `index` in both arrays, counted in elements.
struct Positions {
  std::int64_t target;
  std::int64_t source;
};

template <class Index>
__device__ Positions positions_of(const StridedShape& shape, Index index) {
  Positions at{0, 0};
  for (int dimension = shape.rank - 1; dimension > 0; --dimension) {
    const auto size = static_cast<Index>(shape.sizes[dimension]);
    const Index rest = index / size;
    const auto here = static_cast<std::int64_t>(index - rest * size);
    at.target += here * shape.target_strides[dimension];
    at.source += here * shape.source_strides[dimension];
    index = rest;
  }
  at.target += static_cast<std::int64_t>(index) * shape.target_strides[0];
  at.source += static_cast<std::int64_t>(index) * shape.source_strides[0];
  return at;
}

/// A 16-byte element; complex128 is aligned to 8 bytes only.
struct TwoWords {
  std::uint64_t low;
  std::uint64_t high;
};

/// Elements of the same type: the bytes move.
template <class Word, class Index>
__global__ void __launch_bounds__(threads_per_block)
    move_kernel(Word* target, const Word* source, const __grid_constant__ StridedShape shape) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < shape.count; i += stride) {
    const Positions at = positions_of(shape, static_cast<Index>(i));
    target[at.target] = source[at.source];
  }
}

// With 17 types there are 272 conversions. Four kernels do all of them, by way of the widest type of the
// source's kind, which holds every value exactly: the result is that of the direct conversion.
using WideInteger = std::int64_t;
using WideUnsigned = std::uint64_t;  // only for itself
using WideReal = double;
using WideComplex = std::complex<double>;

template <class T>
struct TypeTag {};

/// The types whose values `Wide` carries.
template <class Wide, class Visitor>
__device__ auto visit_source(DType dtype, Visitor&& visitor) {
  if constexpr (std::is_same_v<Wide, WideInteger>) {
    switch (dtype) {
      case DType::int8:
        return visitor(TypeTag<std::int8_t>{});
      case DType::uint8:
        return visitor(TypeTag<std::uint8_t>{});
      case DType::int16:
        return visitor(TypeTag<std::int16_t>{});
      case DType::uint16:
        return visitor(TypeTag<std::uint16_t>{});
      case DType::int32:
        return visitor(TypeTag<std::int32_t>{});
      case DType::uint32:
        return visitor(TypeTag<std::uint32_t>{});
      case DType::boolean:
        return visitor(TypeTag<bool>{});
      default:
        return visitor(TypeTag<std::int64_t>{});
    }
  } else if constexpr (std::is_same_v<Wide, WideUnsigned>) {
    return visitor(TypeTag<std::uint64_t>{});
  } else if constexpr (std::is_same_v<Wide, WideReal>) {
    switch (dtype) {
      case DType::float16:
        return visitor(TypeTag<Float16>{});
      case DType::bfloat16:
        return visitor(TypeTag<BFloat16>{});
      case DType::float32:
        return visitor(TypeTag<float>{});
      case DType::float8_e4m3:
        return visitor(TypeTag<Float8E4M3>{});
      case DType::float8_e5m2:
        return visitor(TypeTag<Float8E5M2>{});
      default:
        return visitor(TypeTag<double>{});
    }
  } else {
    return dtype == DType::complex64 ? visitor(TypeTag<std::complex<float>>{})
                                     : visitor(TypeTag<std::complex<double>>{});
  }
}

template <class Wide>
__device__ typename SumOf<Wide>::Storage load_wide(DType dtype, const std::byte* base,
                                                   std::int64_t position) {
  return visit_source<Wide>(dtype, [&]<class From>(TypeTag<From>) {
    return convert_value<Wide, From>(reinterpret_cast<const typename SumOf<From>::Storage*>(base)[position]);
  });
}

template <class Wide>
__device__ void store_wide(DType dtype, std::byte* base, std::int64_t position,
                           typename SumOf<Wide>::Storage value) {
  const auto store = [&]<class To>(TypeTag<To>) {
    reinterpret_cast<typename SumOf<To>::Storage*>(base)[position] = convert_value<To, Wide>(value);
  };
  switch (dtype) {
    case DType::float16:
      store(TypeTag<Float16>{});
      return;
    case DType::bfloat16:
      store(TypeTag<BFloat16>{});
      return;
    case DType::float32:
      store(TypeTag<float>{});
      return;
    case DType::float64:
      store(TypeTag<double>{});
      return;
    case DType::int8:
      store(TypeTag<std::int8_t>{});
      return;
    case DType::uint8:
      store(TypeTag<std::uint8_t>{});
      return;
    case DType::int16:
      store(TypeTag<std::int16_t>{});
      return;
    case DType::uint16:
      store(TypeTag<std::uint16_t>{});
      return;
    case DType::int32:
      store(TypeTag<std::int32_t>{});
      return;
    case DType::uint32:
      store(TypeTag<std::uint32_t>{});
      return;
    case DType::int64:
      store(TypeTag<std::int64_t>{});
      return;
    case DType::uint64:
      store(TypeTag<std::uint64_t>{});
      return;
    case DType::boolean:
      store(TypeTag<bool>{});
      return;
    case DType::complex64:
      store(TypeTag<std::complex<float>>{});
      return;
    case DType::complex128:
      store(TypeTag<std::complex<double>>{});
      return;
    case DType::float8_e4m3:
      store(TypeTag<Float8E4M3>{});
      return;
    case DType::float8_e5m2:
      store(TypeTag<Float8E5M2>{});
      return;
  }
}

template <class Wide, class Index>
__global__ void __launch_bounds__(threads_per_block)
    convert_kernel(std::byte* target, const std::byte* source, DType target_dtype, DType source_dtype,
                   const __grid_constant__ StridedShape shape) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < shape.count; i += stride) {
    const Positions at = positions_of(shape, static_cast<Index>(i));
    store_wide<Wide>(target_dtype, target, at.target, load_wide<Wide>(source_dtype, source, at.source));
  }
}

unsigned blocks_for(std::uint64_t count, int multiprocessors) {
  const std::uint64_t wanted = (count + threads_per_block - 1) / threads_per_block;
  return static_cast<unsigned>(std::min<std::uint64_t>(
      wanted, static_cast<std::uint64_t>(multiprocessors) * blocks_per_multiprocessor));
}

template <class Word>
cudaError_t launch_move(LaunchSite where, const Convert& task, StridedShape& shape) {
  auto* target = reinterpret_cast<Word*>(task.target);
  const auto* source = reinterpret_cast<const Word*>(task.source);
  void* arguments[] = {&target, &source, &shape};
  const auto kernel = shape.count <= std::numeric_limits<std::uint32_t>::max()
                          ? &move_kernel<Word, std::uint32_t>
                          : &move_kernel<Word, std::uint64_t>;
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                          dim3(blocks_for(shape.count, where.multiprocessors)), dim3(threads_per_block),
                          arguments, 0, where.stream);
}

template <class Wide>
cudaError_t launch_conversion(LaunchSite where, Convert task, StridedShape& shape) {
  void* arguments[] = {&task.target, &task.source, &task.target_dtype, &task.source_dtype, &shape};
  const auto kernel = shape.count <= std::numeric_limits<std::uint32_t>::max()
                          ? &convert_kernel<Wide, std::uint32_t>
                          : &convert_kernel<Wide, std::uint64_t>;
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                          dim3(blocks_for(shape.count, where.multiprocessors)), dim3(threads_per_block),
                          arguments, 0, where.stream);
}

}  // namespace

cudaError_t preload_convert() {
  const auto moves = []<class Word>(TypeTag<Word>) {
    return preload_all(
        {kernel_address(move_kernel<Word, std::uint32_t>), kernel_address(move_kernel<Word, std::uint64_t>)});
  };
  const auto conversions = []<class Wide>(TypeTag<Wide>) {
    return preload_all({kernel_address(convert_kernel<Wide, std::uint32_t>),
                        kernel_address(convert_kernel<Wide, std::uint64_t>)});
  };
  return first_failure({moves(TypeTag<std::uint8_t>{}), moves(TypeTag<std::uint16_t>{}),
                        moves(TypeTag<std::uint32_t>{}), moves(TypeTag<std::uint64_t>{}),
                        moves(TypeTag<ComplexSum<float>>{}), moves(TypeTag<TwoWords>{}),
                        conversions(TypeTag<WideInteger>{}), conversions(TypeTag<WideUnsigned>{}),
                        conversions(TypeTag<WideReal>{}), conversions(TypeTag<WideComplex>{})});
}

cudaError_t launch_convert(LaunchSite where, const Convert& task) {
  StridedShape shape = collapse(task);
  if (shape.count == 0) return cudaSuccess;
  if (task.source_dtype == task.target_dtype) {
    switch (size_of(task.source_dtype)) {
      case 1:
        return launch_move<std::uint8_t>(where, task, shape);
      case 2:
        return launch_move<std::uint16_t>(where, task, shape);
      case 4:
        return launch_move<std::uint32_t>(where, task, shape);
      default:
        break;
    }
    // complex64 needs no more than the alignment of its parts.
    if (task.source_dtype == DType::complex64) return launch_move<ComplexSum<float>>(where, task, shape);
    return task.source_dtype == DType::complex128 ? launch_move<TwoWords>(where, task, shape)
                                                  : launch_move<std::uint64_t>(where, task, shape);
  }
  switch (task.source_dtype) {
    case DType::int8:
    case DType::uint8:
    case DType::int16:
    case DType::uint16:
    case DType::int32:
    case DType::uint32:
    case DType::int64:
    case DType::boolean:
      return launch_conversion<WideInteger>(where, task, shape);
    case DType::uint64:
      return launch_conversion<WideUnsigned>(where, task, shape);
    case DType::complex64:
    case DType::complex128:
      return launch_conversion<WideComplex>(where, task, shape);
    default:
      return launch_conversion<WideReal>(where, task, shape);
  }
}

}  // namespace tutti::backend::cuda
