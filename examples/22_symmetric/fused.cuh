// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.cuh"

#include <cmath>
#include <cstdint>

/// Contains the work of a block of the kernels: one text for GPUs and for virtual devices.
namespace fused {

struct Shape {
  std::int64_t rows;
  std::int64_t columns;  ///< a multiple of 4
  float epsilon;
};

/// A thread's place in its block, and the block's in the grid.
struct Place {
  std::int64_t thread;
  std::int64_t threads;
  std::int64_t block;
  std::int64_t blocks;
};

struct alignas(16) Four {
  float values[4];
};
constexpr std::uint32_t most_at_once = 8;  ///< loads of a thread that are under way together

/// Returns the sum of all threads' values, in the same order each time.
TUTTI_HOST_DEVICE inline float sum_of_block(float value) {
#if defined(__CUDA_ARCH__)
  __shared__ float sums[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) value += sums[warp];
  __syncthreads();  // before the next row's sums
#endif
  return value;
}

/// Adds `next` to the squares of one row's sums, which `load(member, four)` finds the terms of, and writes
/// them to `sums`. Terms are added in the order of members, as collectives add them.
template <class Load>
TUTTI_HOST_DEVICE float add_row(const Shape& shape, const Place& place, std::uint32_t members,
                                const Load& load, Four* sums) {
  float squares = 0;
  for (std::int64_t four = place.thread; four < shape.columns / 4; four += place.threads) {
    Four sum = load(0, four);
    for (std::uint32_t first = 1; first < members; first += most_at_once) {
      Four terms[most_at_once] = {};
      for (std::uint32_t i = 0; i < most_at_once; ++i) {
        if (first + i < members) terms[i] = load(first + i, four);
      }
      for (std::uint32_t i = 0; i < most_at_once; ++i) {
        if (first + i >= members) continue;
        for (int k = 0; k < 4; ++k) sum.values[k] += terms[i].values[k];
      }
    }
    for (const float value : sum.values) squares += value * value;
    sums[four] = sum;
  }
  return squares;
}

TUTTI_HOST_DEVICE inline float scale_of(const Shape& shape, float squares) {
  return 1 / sqrtf(sum_of_block(squares) / static_cast<float>(shape.columns) + shape.epsilon);
}

TUTTI_HOST_DEVICE inline Four scaled(Four row, float scale, const Four& weights) {
  for (int k = 0; k < 4; ++k) row.values[k] *= scale * weights.values[k];
  return row;
}

/// The second of two calls: normalises the rows of `sums` to `out`.
TUTTI_HOST_DEVICE inline void normalise(const Shape& shape, const Place& place, const float* weights,
                                        const float* sums, float* out) {
  const std::int64_t fours = shape.columns / 4;
  for (std::int64_t row = place.block; row < shape.rows; row += place.blocks) {
    const auto* const from = reinterpret_cast<const Four*>(sums) + row * fours;
    auto* const to = reinterpret_cast<Four*>(out) + row * fours;
    const float scale = scale_of(
        shape, add_row(
                   shape, place, 1, [=](std::uint32_t, std::int64_t four) { return from[four]; }, to));
    for (std::int64_t four = place.thread; four < fours; four += place.threads)
      to[four] = scaled(to[four], scale, reinterpret_cast<const Four*>(weights)[four]);
  }
}

/// One kernel for both. Each member's symmetric memory has its terms, [rows, columns], and behind them room
/// for the results. A member adds and normalises some of the rows, and writes them to all members. Each of
/// its blocks waits for the blocks of the same number of the other members: before, as their terms must be
/// there, and at the end, as their results must be, and the terms may be overwritten then.
TUTTI_HOST_DEVICE inline tutti::WaitStatus all_reduce_and_normalise(const tutti::SymmetricView& view,
                                                                    const Shape& shape, const Place& place,
                                                                    const float* weights) {
  namespace device = tutti::device;
  const auto channel = static_cast<std::uint32_t>(place.block);
  const std::int64_t fours = shape.columns / 4;
  if (const auto status = device::barrier(view, channel); status != tutti::WaitStatus::done) return status;
  for (std::int64_t row = view.member + view.member_count * place.block; row < shape.rows;
       row += view.member_count * place.blocks) {
    const auto terms = [&](std::uint32_t member, std::int64_t four) {
      return device::peer_data<const Four>(view, member)[row * fours + four];
    };
    const std::int64_t results = (shape.rows + row) * fours;
    Four* const own = device::own_data<Four>(view) + results;
    const float scale = scale_of(shape, add_row(shape, place, view.member_count, terms, own));
    for (std::int64_t four = place.thread; four < fours; four += place.threads) {
      const Four result = scaled(own[four], scale, reinterpret_cast<const Four*>(weights)[four]);
      for (std::uint32_t i = 0; i < view.member_count; ++i) {
        const std::uint32_t member = (view.member + i) % view.member_count;  // not all to the same at once
        device::peer_data<Four>(view, member)[results + four] = result;
      }
    }
  }
  return device::barrier(view, channel);
}

}  // namespace fused
