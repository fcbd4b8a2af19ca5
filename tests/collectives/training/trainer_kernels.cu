// SPDX-License-Identifier: Apache-2.0
#include "collectives/training/trainer_kernels.cuh"

#include <cuda/atomic>

#include <cuda_runtime.h>

namespace tutti::test {
namespace {

constexpr unsigned threads = 256;
constexpr unsigned blocks = 528;

__device__ std::int64_t first_index() {
  return blockIdx.x * std::int64_t{blockDim.x} + threadIdx.x;
}
__device__ std::int64_t all_threads() {
  return std::int64_t{gridDim.x} * blockDim.x;
}

__global__ void fill_kernel(__nv_bfloat16* out, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = first_index(); i < count; i += all_threads()) {
    std::uint32_t bits = (static_cast<std::uint32_t>(i) + seed) * 2654435761U;
    bits ^= bits >> 15U;
    out[i] = __float2bfloat16((static_cast<float>(bits % 257) - 128) / 64);
  }
}

__global__ void add_rows_kernel(const __nv_bfloat16* matrix, std::int64_t rows, std::int64_t columns,
                                __nv_bfloat16* out, float* partial, std::uint32_t* done) {
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float sum = 0;
    for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x)
      sum += __bfloat162float(matrix[row * columns + column]);
    partial[blockIdx.x * columns + column] = sum;
  }
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) is_last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (std::int64_t column = threadIdx.x; column < columns; column += blockDim.x) {
    float sum = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) sum += partial[block * columns + column];
    out[column] = __float2bfloat16(sum);
  }
}

__global__ void count_kernel(const std::uint16_t* result, const __nv_bfloat16* own, const __nv_bfloat16* peer,
                             std::int64_t count, unsigned long long* wrong) {
  for (std::int64_t i = first_index(); i < count; i += all_threads()) {
    const float average = (__bfloat162float(own[i]) + __bfloat162float(peer[i])) * 0.5F;
    if (__bfloat16_as_ushort(__float2bfloat16(average)) == result[i]) continue;
    atomicAdd(wrong, 1ULL);
    wrong[1] = i;
  }
}

}  // namespace

void fill_with_numbers(__nv_bfloat16* out, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  fill_kernel<<<blocks, threads, 0, stream>>>(out, count, seed);
}

void add_rows(const __nv_bfloat16* matrix, std::int64_t rows, std::int64_t columns, __nv_bfloat16* out,
              float* partial, std::uint32_t* done, cudaStream_t stream) {
  add_rows_kernel<<<blocks_of_column_sums, threads, 0, stream>>>(matrix, rows, columns, out, partial, done);
}

void count_wrong_averages(const __nv_bfloat16* result, const __nv_bfloat16* own, const __nv_bfloat16* peer,
                          std::int64_t count, unsigned long long* wrong, cudaStream_t stream) {
  count_kernel<<<blocks, threads, 0, stream>>>(reinterpret_cast<const std::uint16_t*>(result), own, peer,
                                               count, wrong);
}

}  // namespace tutti::test
