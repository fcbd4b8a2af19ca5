// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/kernel_table.cuh"
#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/numbers/arithmetic.hpp"
#include "backend/numbers/reduction.hpp"

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

/// Runs one tile of an ordered sum on one lane of a warp. As in `fan_out_tile.cuh`, lanes are independent.
namespace tutti::backend::cuda {

/// Combines elements by addition: `take` adds a chunk of the input number `input` to the totals, or makes it
/// the totals if that is the first. A chunk that is not there is deselected, not skipped: behind a branch,
/// the compiler would move each load next to its addition. Kernels for sums know no other operation, and keep
/// more loads in flight.
template <class T>
struct Summing {
  using Sum = SumOf<T>;
  using Storage = typename Sum::Storage;
  using Accumulator = typename Sum::Accumulator;
  /// The inputs that a lane loads before it adds the first of them.
  static constexpr std::uint32_t inputs_in_flight = 8;
  /// The chunks that a lane loads before it adds those of the first, if inputs are few.
  static constexpr std::uint32_t chunks_in_flight = 4;

  template <std::uint32_t size>
  TUTTI_HOST_DEVICE void take(const Storage (&elements)[size], std::uint32_t input, bool is_there,
                              Accumulator (&totals)[size]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < size; ++i) {
      const auto sum = input == 0 ? Sum::load(elements[i]) : Sum::add(totals[i], elements[i]);
      totals[i] = is_there ? sum : totals[i];
    }
  }
  template <std::uint32_t size>
  TUTTI_HOST_DEVICE void store(const Accumulator (&totals)[size], std::uint32_t /*inputs*/,
                               Storage (&elements)[size]) const {
#pragma unroll
    for (std::uint32_t i = 0; i < size; ++i) elements[i] = Sum::store(totals[i]);
  }
};

/// The arithmetic of unsigned elements in kernels for elements of type T, if these take them; otherwise T's.
template <class T>
using UnsignedReductionOf =
    ReductionOf<typename std::conditional_t<std::signed_integral<T> && (sizeof(T) > 1), std::make_unsigned<T>,
                                            std::type_identity<T>>::type>;

/// Combines elements by any operation, which is the same for all threads of a kernel.
template <class T>
struct Reducer {
  using How = ReductionOf<T>;
  using Unsigned = UnsignedReductionOf<T>;
  using Storage = typename How::Storage;
  using Accumulator = typename How::Accumulator;
  static constexpr std::uint32_t inputs_in_flight = 2;
  /// Registers do not suffice for more chunks of the largest elements.
  static constexpr std::uint32_t chunks_in_flight = sizeof(Accumulator) > 8 ? 1 : 2;

  template <std::uint32_t size>
  TUTTI_HOST_DEVICE void take(const Storage (&elements)[size], std::uint32_t input, bool is_there,
                              Accumulator (&totals)[size]) const {
    Accumulator values[size];
#pragma unroll
    for (std::uint32_t i = 0; i < size; ++i) values[i] = How::load(elements[i]);
    if (operation.kind == ReduceKind::premul_sum && is_there) {
      const double factor = factor_of(input);
#pragma unroll
      for (std::uint32_t i = 0; i < size; ++i) values[i] = How::times_factor(values[i], factor);
    }
    visit_kind(operation.kind, [&]<ReduceKind kind>() {
#pragma unroll
      for (std::uint32_t i = 0; i < size; ++i) {
        const auto total = input == 0 ? values[i] : combine<kind>(totals[i], values[i]);
        totals[i] = is_there ? total : totals[i];
      }
    });
  }
  template <std::uint32_t size>
  TUTTI_HOST_DEVICE void store(const Accumulator (&totals)[size], std::uint32_t inputs,
                               Storage (&elements)[size]) const {
    const bool is_mean = operation.kind == ReduceKind::avg;
#pragma unroll
    for (std::uint32_t i = 0; i < size; ++i)
      elements[i] = How::store(is_mean ? mean(totals[i], inputs) : totals[i]);
  }

  template <ReduceKind kind>
  [[nodiscard]] TUTTI_HOST_DEVICE Accumulator combine(Accumulator a, Accumulator b) const {
    return operation.are_unsigned ? Unsigned::template combine<kind>(a, b)
                                  : How::template combine<kind>(a, b);
  }
  [[nodiscard]] TUTTI_HOST_DEVICE Accumulator mean(Accumulator sum, std::uint32_t count) const {
    return operation.are_unsigned ? Unsigned::mean(sum, count) : How::mean(sum, count);
  }

  [[nodiscard]] TUTTI_HOST_DEVICE double factor_of(std::uint32_t input) const {
    return std::bit_cast<double>(
        pointers[operation.first_factor + (operation.factor_count == 1 ? 0 : input)]);
  }

  ReduceArguments operation;
  std::byte* const* pointers;  ///< the table's, with the factors behind
};

/// The unit that a lane combines at a time: `Bits` is what it loads and stores, seen as `size` elements.
template <class Op, class Bits>
struct SumChunk {
  static constexpr std::uint32_t size = sizeof(Bits) / sizeof(typename Op::Storage);
  typename Op::Storage elements[size];
};

/// The running totals of a chunk's elements.
template <class Op, class Bits>
struct SumTotals {
  using Chunk = SumChunk<Op, Bits>;

  /// Adds `bits` of the input number `input`, if it is there.
  TUTTI_HOST_DEVICE void add(const Op& op, const Bits& bits, std::uint32_t input, bool is_there) {
    const auto chunk = std::bit_cast<Chunk>(bits);
    op.take(chunk.elements, input, is_there, totals);
  }
  [[nodiscard]] TUTTI_HOST_DEVICE Bits result(const Op& op, std::uint32_t inputs) const {
    Chunk chunk;
    op.store(totals, inputs, chunk.elements);
    return std::bit_cast<Bits>(chunk);
  }

  typename Op::Accumulator totals[Chunk::size] = {};
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

/// Accesses byte by byte, for elements that are not aligned to their own size.
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

  /// Stores a chunk's result to all outputs: at once, or element by element where these are aligned
  /// differently.
  template <class Op, class Access, class Bits>
  TUTTI_HOST_DEVICE void store(std::uint64_t offset, const Bits& result, bool are_outputs_aligned) const {
    for (std::uint32_t output = 0; output < output_count; ++output) {
      std::byte* const address = outputs[output] + offset;
      if (are_outputs_aligned) {
        Access::store(address, result);
        continue;
      }
      const auto chunk = std::bit_cast<SumChunk<Op, Bits>>(result);
#pragma unroll
      for (std::uint32_t i = 0; i < SumChunk<Op, Bits>::size; ++i)
        Access::store(address + i * sizeof(chunk.elements[i]), chunk.elements[i]);
    }
  }
};

/// Sums the chunks at `offset` of all inputs, in ascending order, and stores the result to all outputs. All
/// inputs of a chunk are read before any output is written, so that an output may be an input.
template <class Op, class Bits, class Access>
TUTTI_HOST_DEVICE inline void sum_chunk(const Op& op, const SumOperands& operands, std::uint64_t offset,
                                        bool are_outputs_aligned) {
  constexpr std::uint32_t in_flight = Op::inputs_in_flight;
  SumTotals<Op, Bits> totals;
  for (std::uint32_t base = 0; base < operands.input_count; base += in_flight) {
    Bits loaded[in_flight] = {};
#pragma unroll
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      if (base + k < operands.input_count)
        loaded[k] = Access::template load<Bits>(operands.inputs[base + k] + offset);
    }
#pragma unroll
    for (std::uint32_t k = 0; k < in_flight; ++k)
      totals.add(op, loaded[k], base + k, base + k < operands.input_count);
  }
  operands.template store<Op, Access>(offset, totals.result(op, operands.input_count), are_outputs_aligned);
}

/// The most inputs for which a reduction takes several chunks at a time, so that more loads are in flight.
inline constexpr std::uint32_t few_inputs = 2;

/// Sums chunks of few inputs: those at `offset` and at every warp's width after it, before `end`.
template <class Op, class Bits, class Access>
TUTTI_HOST_DEVICE inline void sum_chunks(const Op& op, const SumOperands& operands, std::uint64_t offset,
                                         std::uint64_t end, bool are_outputs_aligned) {
  constexpr std::uint64_t distance = warp_lanes * sizeof(Bits);
  Bits loaded[Op::chunks_in_flight][few_inputs] = {};
#pragma unroll
  for (std::uint32_t chunk = 0; chunk < Op::chunks_in_flight; ++chunk) {
#pragma unroll
    for (std::uint32_t k = 0; k < few_inputs; ++k) {
      if (k < operands.input_count && offset + chunk * distance < end)
        loaded[chunk][k] = Access::template load<Bits>(operands.inputs[k] + offset + chunk * distance);
    }
  }
#pragma unroll
  for (std::uint32_t chunk = 0; chunk < Op::chunks_in_flight; ++chunk) {
    if (offset + chunk * distance >= end) continue;
    SumTotals<Op, Bits> totals;
#pragma unroll
    for (std::uint32_t k = 0; k < few_inputs; ++k)
      totals.add(op, loaded[chunk][k], k, k < operands.input_count);
    operands.template store<Op, Access>(offset + chunk * distance, totals.result(op, operands.input_count),
                                        are_outputs_aligned);
  }
}

/// The elements that a lane loads at a time where it loads them one by one: as many as a vector has, but not
/// so many that the code of those that are loaded byte by byte grows long.
template <class Op, class Access>
inline constexpr std::uint32_t elements_at_a_time = std::is_same_v<Access, UnalignedAccess> ||
                                                            sizeof(typename Op::Storage) > vector_bytes / 2
                                                        ? 1
                                                    : sizeof(typename Op::Storage) == 1
                                                        ? 8
                                                        : vector_bytes / sizeof(typename Op::Storage);

/// Sums elements [begin, end). Those of a lane are a warp's width apart.
template <class Op, class Access>
TUTTI_HOST_DEVICE inline void sum_elements(const Op& op, const SumOperands& operands, std::uint64_t begin,
                                           std::uint64_t end, std::uint32_t lane) {
  using Storage = typename Op::Storage;
  constexpr std::uint32_t per_lane = elements_at_a_time<Op, Access>;
  constexpr std::uint32_t in_flight = Op::inputs_in_flight > per_lane ? Op::inputs_in_flight / per_lane : 1;
  constexpr std::uint64_t distance = warp_lanes * sizeof(Storage);
#pragma unroll 1
  for (std::uint64_t i = begin + lane; i < end; i += warp_lanes * per_lane) {
    const std::uint64_t offset = i * sizeof(Storage);
    typename Op::Accumulator totals[per_lane] = {};
    for (std::uint32_t base = 0; base < operands.input_count; base += in_flight) {
      Storage loaded[in_flight][per_lane] = {};
#pragma unroll
      for (std::uint32_t k = 0; k < in_flight; ++k) {
#pragma unroll
        for (std::uint32_t e = 0; e < per_lane; ++e) {
          if (base + k < operands.input_count && i + e * warp_lanes < end)
            loaded[k][e] = Access::template load<Storage>(operands.inputs[base + k] + offset + e * distance);
        }
      }
#pragma unroll
      for (std::uint32_t k = 0; k < in_flight; ++k)
        op.take(loaded[k], base + k, base + k < operands.input_count, totals);
    }
    Storage results[per_lane];
    op.store(totals, operands.input_count, results);
    for (std::uint32_t output = 0; output < operands.output_count; ++output) {
#pragma unroll
      for (std::uint32_t e = 0; e < per_lane; ++e) {
        if (i + e * warp_lanes < end)
          Access::store(operands.outputs[output] + offset + e * distance, results[e]);
      }
    }
  }
}

template <class Op>
TUTTI_HOST_DEVICE inline void sum_tile(const Op& op, const SumEntry& entry, const SumOperands& operands,
                                       std::uint32_t tile, std::uint32_t tile_bytes, std::uint32_t lane) {
  constexpr std::uint32_t element_bytes = sizeof(typename Op::Storage);
  constexpr std::uint32_t per_vector = vector_bytes / element_bytes;
  const std::uint32_t per_tile = tile_bytes / element_bytes;
  const bool are_outputs_aligned = entry.path == ReductionPath::vectors;
  const bool has_vectors = are_outputs_aligned || entry.path == ReductionPath::loads;
  // The first tile also has the elements before the first transaction of the first input.
  const auto address = reinterpret_cast<std::uintptr_t>(operands.inputs[0]);
  const std::uint32_t lead =
      has_vectors ? static_cast<std::uint32_t>(-address % transaction_bytes) / element_bytes : 0;
  const std::uint32_t local = tile - entry.first_tile;
  const auto within = [&](std::uint64_t element) { return element < entry.count ? element : entry.count; };
  const std::uint64_t begin = local == 0 ? 0 : within(std::uint64_t{local} * per_tile + lead);
  const std::uint64_t end = within((std::uint64_t{local} + 1) * per_tile + lead);
  if (entry.path == ReductionPath::bytes) {
    sum_elements<Op, UnalignedAccess>(op, operands, begin, end, lane);
    return;
  }
  std::uint64_t vectors_begin = end;
  std::uint64_t vectors_end = end;
  if (has_vectors) {
    const std::uint32_t to_boundary =
        static_cast<std::uint32_t>(-(address + begin * element_bytes) % vector_bytes) / element_bytes;
    vectors_begin = begin + to_boundary < end ? begin + to_boundary : end;
    vectors_end = vectors_begin + (end - vectors_begin) / per_vector * per_vector;
  }
  const bool takes_chunks = operands.input_count <= few_inputs;
  const std::uint32_t step = warp_lanes * per_vector * (takes_chunks ? Op::chunks_in_flight : 1);
#pragma unroll 1
  for (std::uint64_t i = vectors_begin + lane * per_vector; i < vectors_end; i += step) {
    if (takes_chunks) {
      sum_chunks<Op, uint4, AlignedAccess>(op, operands, i * element_bytes, vectors_end * element_bytes,
                                           are_outputs_aligned);
    } else {
      sum_chunk<Op, uint4, AlignedAccess>(op, operands, i * element_bytes, are_outputs_aligned);
    }
  }
  sum_elements<Op, AlignedAccess>(op, operands, begin, vectors_begin, lane);
  sum_elements<Op, AlignedAccess>(op, operands, vectors_end, end, lane);
}

}  // namespace tutti::backend::cuda
