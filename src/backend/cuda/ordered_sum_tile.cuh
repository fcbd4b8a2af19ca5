// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/arithmetic.hpp"
#include "backend/cuda/kernel_table.cuh"

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

/// What one lane of a warp does for one tile of an ordered sum. As in `fan_out_tile.cuh`, lanes are
/// independent.
namespace tutti::backend::cuda {

/// Inputs a lane loads before it adds the first of them.
inline constexpr std::uint32_t inputs_in_flight = 8;

/// What a lane adds at a time: `Bits` is what it loads and stores, seen as `size` elements.
template <class T, class Bits>
struct SumChunk {
  using Storage = typename SumOf<T>::Storage;
  static constexpr std::uint32_t size = sizeof(Bits) / sizeof(Storage);
  Storage elements[size];
};

/// The sums of a chunk's elements so far.
template <class T, class Bits>
struct SumTotals {
  using Sum = SumOf<T>;
  using Chunk = SumChunk<T, Bits>;

  /// `bits` is added, or is the sum itself if it comes first. Selected, not skipped if it is not there:
  /// behind a branch, the compiler would move each load next to its addition.
  TUTTI_HOST_DEVICE void add(const Bits& bits, bool is_first, bool is_there) {
    const auto chunk = std::bit_cast<Chunk>(bits);
#pragma unroll
    for (std::uint32_t i = 0; i < Chunk::size; ++i) {
      const auto sum = is_first ? Sum::load(chunk.elements[i]) : Sum::add(totals[i], chunk.elements[i]);
      totals[i] = is_there ? sum : totals[i];
    }
  }
  [[nodiscard]] TUTTI_HOST_DEVICE Bits result() const {
    Chunk chunk;
#pragma unroll
    for (std::uint32_t i = 0; i < Chunk::size; ++i) chunk.elements[i] = Sum::store(totals[i]);
    return std::bit_cast<Bits>(chunk);
  }

  typename Sum::Accumulator totals[Chunk::size] = {};
};

struct AlignedAccess {
  template <class Bits>
  static TUTTI_HOST_DEVICE Bits load(const std::byte* address) {
    return *reinterpret_cast<const Bits*>(address);
  }
  template <class Bits>
  static TUTTI_HOST_DEVICE void store(std::byte* address, const Bits& bits) {
    *reinterpret_cast<Bits*>(address) = bits;
  }
};

/// Byte by byte, for elements that are not aligned to their own size.
struct UnalignedAccess {
  template <class Bits>
  struct Bytes {
    std::byte bytes[sizeof(Bits)];
  };
  template <class Bits>
  static TUTTI_HOST_DEVICE Bits load(const std::byte* address) {
    Bytes<Bits> bytes;
    for (std::size_t i = 0; i < sizeof(Bits); ++i) bytes.bytes[i] = address[i];
    return std::bit_cast<Bits>(bytes);
  }
  template <class Bits>
  static TUTTI_HOST_DEVICE void store(std::byte* address, const Bits& bits) {
    const auto bytes = std::bit_cast<Bytes<Bits>>(bits);
    for (std::size_t i = 0; i < sizeof(Bits); ++i) address[i] = bytes.bytes[i];
  }
};

/// The addresses of one entry's operands.
struct SumOperands {
  const std::byte* const* inputs;
  std::byte* const* outputs;
  std::uint32_t input_count;
  std::uint32_t output_count;
};

/// The sum of the chunks at `offset` of all inputs, in ascending order, stored to all outputs. All inputs of
/// a chunk are read before any output is written, so that an output may be an input.
template <class T, class Bits, class Access>
TUTTI_HOST_DEVICE inline void sum_chunk(const SumOperands& operands, std::uint64_t offset) {
  SumTotals<T, Bits> totals;
  for (std::uint32_t base = 0; base < operands.input_count; base += inputs_in_flight) {
    Bits loaded[inputs_in_flight] = {};
#pragma unroll
    for (std::uint32_t k = 0; k < inputs_in_flight; ++k) {
      if (base + k < operands.input_count)
        loaded[k] = Access::template load<Bits>(operands.inputs[base + k] + offset);
    }
#pragma unroll
    for (std::uint32_t k = 0; k < inputs_in_flight; ++k)
      totals.add(loaded[k], base + k == 0, base + k < operands.input_count);
  }
  const Bits result = totals.result();
  for (std::uint32_t output = 0; output < operands.output_count; ++output)
    Access::store(operands.outputs[output] + offset, result);
}

/// Elements [begin, end) one per lane.
template <class T, class Access>
TUTTI_HOST_DEVICE inline void sum_elements(const SumOperands& operands, std::uint64_t begin,
                                           std::uint64_t end, std::uint32_t lane) {
  using Storage = typename SumOf<T>::Storage;
#pragma unroll 1
  for (std::uint64_t i = begin + lane; i < end; i += warp_lanes) {
    sum_chunk<T, Storage, Access>(operands, i * sizeof(Storage));
  }
}

template <class T>
TUTTI_HOST_DEVICE inline void sum_tile(const SumEntry& entry, const SumOperands& operands, std::uint32_t tile,
                                       std::uint32_t tile_bytes, std::uint32_t lane) {
  constexpr std::uint32_t element_bytes = sizeof(typename SumOf<T>::Storage);
  constexpr std::uint32_t per_vector = vector_bytes / element_bytes;
  const std::uint32_t per_tile = tile_bytes / element_bytes;
  const std::uint64_t begin = std::uint64_t{tile - entry.first_tile} * per_tile;
  const std::uint64_t end = begin + per_tile < entry.count ? begin + per_tile : entry.count;
  if (entry.path == SumPath::bytes) {
    sum_elements<T, UnalignedAccess>(operands, begin, end, lane);
    return;
  }
  std::uint64_t vectors_begin = end;
  std::uint64_t vectors_end = end;
  if (entry.path == SumPath::vectors) {
    const auto address = reinterpret_cast<std::uintptr_t>(operands.inputs[0]) + begin * element_bytes;
    const std::uint32_t to_boundary = (vector_bytes - address % vector_bytes) % vector_bytes / element_bytes;
    vectors_begin = begin + to_boundary < end ? begin + to_boundary : end;
    vectors_end = vectors_begin + (end - vectors_begin) / per_vector * per_vector;
  }
#pragma unroll 1
  for (std::uint64_t i = vectors_begin + lane * per_vector; i < vectors_end; i += warp_lanes * per_vector) {
    sum_chunk<T, uint4, AlignedAccess>(operands, i * element_bytes);
  }
  sum_elements<T, AlignedAccess>(operands, begin, vectors_begin, lane);
  sum_elements<T, AlignedAccess>(operands, vectors_end, end, lane);
}

}  // namespace tutti::backend::cuda
