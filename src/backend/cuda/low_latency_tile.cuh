#pragma once

#include "backend/cuda/device_words.cuh"
#include "backend/cuda/fan_out_tile.cuh"
#include "backend/cuda/kernel_table.cuh"
#include "backend/cuda/ordered_sum_tile.cuh"
#include "backend/team_round.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

/// What one lane of a warp does in a low-latency round: it has one chunk of each tile, 16 bytes of a message,
/// which are two lines of an inbox.
///
/// A line is stored by one access of 16 bytes and loaded by one, neither of which tears: whoever reads the
/// number of a round has read the bytes that came with it. No order among lines is needed.
namespace tutti::backend::cuda {

inline constexpr std::uint32_t chunk_bytes = vector_bytes;
inline constexpr std::uint32_t chunk_lines = TeamWindowLayout::in_lines(chunk_bytes);  ///< bytes of an inbox
inline constexpr std::uint32_t low_latency_tile = chunk_bytes * warp_lanes;
static_assert(low_latency_tile == smallest_tile);

#if CUDART_VERSION >= 12030
#define TUTTI_STORE_LINE \
  "{ .reg .b128 line; mov.b128 line, {%1, %2}; st.relaxed.sys.global.b128 [%0], line; }"
#define TUTTI_LOAD_LINE "{ .reg .b128 line; ld.relaxed.sys.global.b128 line, [%2]; mov.b128 {%0, %1}, line; }"
#else
// What older toolkits can say does not promise one access, but becomes the same instructions.
#define TUTTI_STORE_LINE "st.relaxed.sys.global.v2.b64 [%0], {%1, %2};"
#define TUTTI_LOAD_LINE "ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
#endif

__device__ inline void store_line(std::byte* place, const TeamLine& line) {
  asm volatile(TUTTI_STORE_LINE ::"l"(place), "l"(line.data), "l"(line.round) : "memory");
}
__device__ inline TeamLine load_line(const std::byte* place) {
  TeamLine line;
  asm volatile(TUTTI_LOAD_LINE : "=l"(line.data), "=l"(line.round) : "l"(place) : "memory");
  return line;
}

#undef TUTTI_STORE_LINE
#undef TUTTI_LOAD_LINE

/// The last one of a message may have fewer bytes.
struct alignas(16) Chunk {
  std::uint64_t low;
  std::uint64_t high;
};

__device__ inline Chunk load_chunk(const std::byte* source, std::uint32_t bytes) {
  if (bytes == chunk_bytes && misalignment(source) == 0) return *reinterpret_cast<const Chunk*>(source);
  Chunk chunk{};
#pragma unroll
  for (std::uint32_t i = 0; i < chunk_bytes; ++i) {
    const std::uint64_t byte = i < bytes ? std::to_integer<std::uint64_t>(source[i]) : 0;
    if (i < 8) {
      chunk.low |= byte << i * 8;
    } else {
      chunk.high |= byte << (i - 8) * 8;
    }
  }
  return chunk;
}
__device__ inline void store_chunk(const Chunk& chunk, std::byte* target, std::uint32_t bytes) {
  if (bytes == chunk_bytes && misalignment(target) == 0) {
    *reinterpret_cast<Chunk*>(target) = chunk;
    return;
  }
#pragma unroll
  for (std::uint32_t i = 0; i < chunk_bytes; ++i) {
    if (i < bytes) target[i] = static_cast<std::byte>(i < 8 ? chunk.low >> i * 8 : chunk.high >> (i - 8) * 8);
  }
}

/// Where in a segment of `total` bytes a lane's chunk is.
struct ChunkPlace {
  std::uint64_t begin;
  std::uint32_t bytes;  ///< 0: there is none

  __device__ ChunkPlace(std::uint64_t total, std::uint32_t tile_in_segment, std::uint32_t lane)
      : begin(std::uint64_t{tile_in_segment} * low_latency_tile + lane * chunk_bytes),
        bytes(begin >= total
                  ? 0
                  : static_cast<std::uint32_t>(total - begin < chunk_bytes ? total - begin : chunk_bytes)) {}
  [[nodiscard]] __device__ std::uint64_t line() const { return begin / chunk_bytes * chunk_lines; }
};

/// Puts a chunk into the inboxes of its readers.
__device__ inline void put_lines(const FanOutEntry& entry, std::byte* const* pointers, std::uint32_t tile,
                                 std::uint32_t lane, std::uint64_t shift, std::uint64_t round) {
  const ChunkPlace chunk(entry.row_bytes, tile - entry.first_tile, lane);
  if (chunk.bytes == 0) return;
  const Chunk value = load_chunk(pointers[entry.source] + chunk.begin, chunk.bytes);
  for (std::uint32_t t = 0; t < entry.target_count; ++t) {
    std::byte* const target = pointers[entry.first_target + t] + shift + chunk.line();
    store_line(target, {value.low, round});
    store_line(target + sizeof(TeamLine), {value.high, round});
  }
}

/// What waits for lines needs to know.
struct LineWait {
  std::uint64_t shift;  ///< of the round's inbox
  std::uint64_t round;
  std::uint32_t* abort;
};

/// Looks for a chunk of which both lines should lie at `place`.
__device__ inline bool find_chunk(const std::byte* place, std::uint64_t round, Chunk& chunk) {
  const TeamLine low = load_line(place);
  const TeamLine high = load_line(place + sizeof(TeamLine));
  chunk = {low.data, high.data};
  return low.round == round && high.round == round;
}

/// The abort word is in host memory: looking at it costs as much as some polls of a line.
inline constexpr std::uint32_t line_polls_per_look = 128;

/// The chunks of up to `Count` places (`SourcePlace`), of which there are `count`, once all have come; false
/// if the abort word is set before. All are looked for before the first is waited for.
template <std::uint32_t Count>
__device__ inline bool get_chunks(std::byte* const* places, std::uint32_t count, const ChunkPlace& where,
                                  const LineWait& wait, Chunk (&chunks)[Count]) {
  std::uint32_t missing = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < Count; ++k) {
    if (k >= count) continue;
    const auto bits = reinterpret_cast<std::uintptr_t>(places[k]);
    if (SourcePlace::is_in_slot(bits)) {
      if (!find_chunk(places[k] + wait.shift + where.line(), wait.round, chunks[k])) missing |= 1U << k;
    } else {
      chunks[k] = load_chunk(reinterpret_cast<const std::byte*>(SourcePlace::address(bits)) + where.begin,
                             where.bytes);
    }
  }
  for (std::uint32_t polls = 1; missing != 0; ++polls) {
#pragma unroll
    for (std::uint32_t k = 0; k < Count; ++k) {
      if ((missing & 1U << k) == 0) continue;
      if (find_chunk(places[k] + wait.shift + where.line(), wait.round, chunks[k])) missing &= ~(1U << k);
    }
    if (polls % line_polls_per_look != 0) continue;
    if (SystemWord(*wait.abort).load(::cuda::memory_order_relaxed) == AbortWord::aborted) return false;
  }
  return true;
}

/// False if the abort word is set before the lane's chunk has come.
__device__ inline bool copy_lines(const FanOutEntry& entry, std::byte* const* pointers, std::uint32_t tile,
                                  std::uint32_t lane, const LineWait& wait) {
  const ChunkPlace where(entry.row_bytes, tile - entry.first_tile, lane);
  if (where.bytes == 0) return true;
  Chunk value[1];
  if (!get_chunks(pointers + entry.source, 1, where, wait, value)) return false;
  for (std::uint32_t t = 0; t < entry.target_count; ++t)
    store_chunk(value[0], pointers[entry.first_target + t] + where.begin, where.bytes);
  return true;
}

/// Likewise, for a sum with one output. Inputs are added in ascending order.
template <class T>
__device__ inline bool sum_lines(const SumEntry& entry, std::byte* const* pointers, std::uint32_t input_count,
                                 std::uint32_t tile, std::uint32_t lane, const LineWait& wait) {
  constexpr std::uint32_t in_flight = 2;  // more would not stay in registers
  const ChunkPlace where(entry.count * sizeof(typename SumOf<T>::Storage), tile - entry.first_tile, lane);
  if (where.bytes == 0) return true;
  SumTotals<T, Chunk> totals;
  for (std::uint32_t base = 0; base < input_count; base += in_flight) {
    Chunk chunks[in_flight] = {};
    const std::uint32_t left = input_count - base;
    if (!get_chunks(pointers + entry.first_input + base, left < in_flight ? left : in_flight, where, wait,
                    chunks)) {
      return false;
    }
#pragma unroll
    for (std::uint32_t k = 0; k < in_flight; ++k) totals.add(chunks[k], base + k == 0, k < left);
  }
  store_chunk(totals.result(), pointers[entry.first_output] + where.begin, where.bytes);
  return true;
}

}  // namespace tutti::backend::cuda
