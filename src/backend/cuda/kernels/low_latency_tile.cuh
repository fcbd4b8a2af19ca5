// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/device_words.cuh"
#include "backend/cuda/kernels/fan_out_tile.cuh"
#include "backend/cuda/kernels/for_each_tile.cuh"
#include "backend/cuda/kernels/kernel_table.cuh"
#include "backend/cuda/kernels/ordered_reduction_tile.cuh"
#include "backend/team_round.hpp"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

/// Runs one lane of a warp in a low-latency round: of each tile it has one chunk, up to 16 bytes of a
/// message.
///
/// Lines need no order: a thread that reads the number of a round in a line has read the bytes that came with
/// it.
namespace tutti::backend::cuda {

inline constexpr std::uint32_t chunk_bytes = vector_bytes;

/// A chunk; the last one of a message may have fewer bytes, and wide lines have some of 8 among them.
struct alignas(16) Chunk {
  std::uint64_t low;
  std::uint64_t high;
};

__device__ inline Chunk load_chunk(const std::byte* source, std::uint32_t bytes) {
  const auto* const words = reinterpret_cast<const std::uint64_t*>(source);
  if (misalignment(source) % sizeof *words == 0) {
    if (bytes == chunk_bytes && misalignment(source) == 0) return *reinterpret_cast<const Chunk*>(source);
    if (bytes == chunk_bytes) return {words[0], words[1]};
    if (bytes == sizeof *words) return {words[0], 0};
  }
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
  auto* const words = reinterpret_cast<std::uint64_t*>(target);
  if (misalignment(target) % sizeof *words == 0) {
    if (bytes == chunk_bytes && misalignment(target) == 0) {
      *reinterpret_cast<Chunk*>(target) = chunk;
      return;
    }
    if (bytes == chunk_bytes || bytes == sizeof *words) {
      words[0] = chunk.low;
      if (bytes == chunk_bytes) words[1] = chunk.high;
      return;
    }
  }
#pragma unroll
  for (std::uint32_t i = 0; i < chunk_bytes; ++i) {
    if (i < bytes) target[i] = static_cast<std::byte>(i < 8 ? chunk.low >> i * 8 : chunk.high >> (i - 8) * 8);
  }
}

/// The place of a lane's chunk in a segment and in the message's lines.
struct ChunkPlace {
  std::uint64_t begin;
  std::uint64_t line;
  std::uint32_t bytes;  ///< 0: there is none
  bool has_line;        ///< even without bytes: of a wide line that has some
};

__device__ inline std::uint32_t bytes_left(std::uint64_t total, std::uint64_t begin, std::uint32_t most) {
  if (begin >= total) return 0;
  return static_cast<std::uint32_t>(total - begin < most ? total - begin : most);
}

/// Uses two lines for each chunk. A line is stored by one access of 16 bytes and loaded by one, neither of
/// which tears. Lanes need not run together.
struct NarrowLines {
  static __device__ ChunkPlace place(std::uint64_t total, std::uint32_t tile, std::uint32_t lane) {
    const std::uint64_t begin =
        std::uint64_t{tile} * low_latency_tile(TeamLines::narrow) + lane * chunk_bytes;
    const std::uint32_t bytes = bytes_left(total, begin, chunk_bytes);
    return {begin, 2 * begin, bytes, bytes != 0};
  }
  static __device__ void store(std::byte* place, const Chunk& chunk, std::uint64_t round) {
    store_line(place, {chunk.low, round});
    store_line(place + sizeof(TeamLine), {chunk.high, round});
  }
  /// Returns true if the lane has the right lines.
  static __device__ bool load(const std::byte* place, std::uint64_t round, Chunk& chunk) {
    const TeamLine low = load_line(place);
    const TeamLine high = load_line(place + sizeof(TeamLine));
    chunk = {low.data, high.data};
    return low.round == round && high.round == round;
  }
  // Lanes are independent.
  static __device__ void meet() {}
  static __device__ bool agreed(bool found) { return found; }
  static __device__ bool any(bool is_so) { return is_so; }
  static __device__ bool speaks() { return true; }
};

/// Uses a line for every eight lanes, the last of which has the number of the round instead of its upper
/// half. They store it and load it together, and NVLink and the memories at its ends keep the 128 bytes of
/// such an access together: this is not guaranteed, but it holds, and NCCL's LL128 is built on it.
struct WideLines {
  static constexpr std::uint32_t lanes = 8;
  static constexpr std::uint32_t line_data_bytes = lanes * chunk_bytes - sizeof(TeamLine::round);

  static_assert(warp_lanes / lanes * line_data_bytes == low_latency_tile(TeamLines::wide));

  static __device__ std::uint32_t lane_in_line() { return threadIdx.x % lanes; }
  static __device__ ChunkPlace place(std::uint64_t total, std::uint32_t tile, std::uint32_t lane) {
    const std::uint64_t first =
        std::uint64_t{tile} * low_latency_tile(TeamLines::wide) + lane / lanes * line_data_bytes;
    const std::uint64_t begin = first + lane % lanes * chunk_bytes;
    const std::uint32_t most = lane % lanes == lanes - 1 ? chunk_bytes / 2 : chunk_bytes;
    return {begin, (std::uint64_t{tile} * warp_lanes + lane) * chunk_bytes, bytes_left(total, begin, most),
            first < total};
  }
  static __device__ void store(std::byte* place, const Chunk& chunk, std::uint64_t round) {
    store_line(place, {chunk.low, lane_in_line() == lanes - 1 ? round : chunk.high});
  }
  static __device__ bool load(const std::byte* place, std::uint64_t round, Chunk& chunk) {
    const TeamLine line = load_line(place);
    chunk = {line.data, line.round};
    return line.round == round;
  }
  // These are called by whole warps.
  /// Brings the lanes together before a store: lanes of a line that stored separately would tear the line.
  static __device__ void meet() { __syncwarp(); }
  /// Returns true if the lane that has the number has found it.
  static __device__ bool agreed(bool found) {
    return __shfl_sync(~0U, found ? 1 : 0, threadIdx.x | (lanes - 1)) != 0;
  }
  static __device__ bool any(bool is_so) { return __any_sync(~0U, is_so ? 1 : 0) != 0; }
  /// Returns true if the lane speaks for all that wait together.
  static __device__ bool speaks() { return threadIdx.x % warp_lanes == 0; }
};

/// The lines of a round.
struct RoundLines {
  std::uint64_t shift;  ///< of the round's inboxes
  std::uint64_t round;
};

/// A range of a table's pointers. It is kept instead of its entry: compilers do not know that a pointer which
/// may be null points to the parameters, and load what it points to as if from anywhere.
struct Targets {
  std::uint32_t first;
  std::uint32_t count;
};
__device__ inline Targets targets_of(const FanOutEntry& entry) {
  return {entry.first_target, entry.target_count};
}

/// Puts a chunk into the inboxes of its readers.
template <class Lines>
__device__ inline void put_chunk(const Chunk& value, const ChunkPlace& where, Targets targets,
                                 std::byte* const* pointers, const RoundLines& lines) {
  Lines::meet();
  if (!where.has_line) return;
  for (std::uint32_t t = 0; t < targets.count; ++t)
    Lines::store(pointers[targets.first + t] + lines.shift + where.line, value, lines.round);
}
template <class Lines>
__device__ inline void put_lines(const FanOutEntry& entry, std::byte* const* pointers, std::uint32_t tile,
                                 std::uint32_t lane, const RoundLines& lines) {
  const ChunkPlace where = Lines::place(entry.row_bytes, tile - entry.first_tile, lane);
  put_chunk<Lines>(load_chunk(pointers[entry.source] + where.begin, where.bytes), where, targets_of(entry),
                   pointers, lines);
}

/// The first tile that a warp puts. It is found before the kernel before is over, if the table is in the
/// parameters, and loaded before the warp knows whether there is room for it, as both take as long.
template <class Lines>
class FirstPut {
 public:
  __device__ FirstPut(const std::byte* table, const TableShape& shape)
      : view_(view_of<FanOutEntry>(table, shape)) {}
  __device__ void find(const TableShape& shape) {
    const std::uint32_t tile = first_tile();
    exists_ = tile < shape.tile_count;
    if (!exists_) return;
    const FanOutEntry& entry = find_entry(view_.entries, shape, tile);
    where_ = Lines::place(entry.row_bytes, tile - entry.first_tile, threadIdx.x % warp_lanes);
    source_ = __cvta_generic_to_global(view_.pointers[entry.source] + where_.begin);
    targets_ = targets_of(entry);
  }
  __device__ void load() {
    if (exists_)
      chunk_ = load_chunk(static_cast<const std::byte*>(__cvta_global_to_generic(source_)), where_.bytes);
  }
  __device__ void put(const RoundLines& lines) const {
    if (exists_) put_chunk<Lines>(chunk_, where_, targets_, view_.pointers, lines);
  }

 private:
  TableView<FanOutEntry> view_;
  bool exists_ = false;
  std::size_t source_ = 0;  ///< an address of global memory
  ChunkPlace where_{};
  Targets targets_{};
  Chunk chunk_{};
};

/// The arguments of a wait for lines.
struct LineWait {
  RoundLines lines;
  TeamWait team;
};

/// The data that a lane needs of a tile of the second half besides the data that arrive. All of it is in the
/// table, so it can be found before the wait.
struct Get {
  static constexpr std::uint32_t inputs_at_hand = 2;  // more would not stay in registers

  ChunkPlace where;
  std::byte* inputs[inputs_at_hand];  ///< the first ones
  std::byte* output;                  ///< the first one
  std::uint32_t first_input;
  Targets outputs;
  std::uint32_t entry;  ///< its number
};
template <class Lines>
__device__ inline Get get_of(const FanOutEntry& entry, std::byte* const* pointers, std::uint32_t tile,
                             std::uint32_t lane) {
  const ChunkPlace where = Lines::place(entry.row_bytes, tile - entry.first_tile, lane);
  return {.where = where,
          .inputs = {pointers[entry.source], nullptr},
          .output = pointers[entry.first_target] + where.begin,
          .first_input = entry.source,
          .outputs = targets_of(entry),
          .entry = 0};
}

/// Loads the chunks of up to `Count` places (`SourcePlace`), of which there are `count`, once all have come.
/// Returns false if the abort word is set before. All are polled before the first is waited for.
template <class Lines, std::uint32_t Count>
__device__ inline bool get_chunks(std::byte* const (&places)[Count], std::uint32_t count,
                                  const ChunkPlace& where, const LineWait& wait, Chunk (&chunks)[Count]) {
  std::uint32_t missing = 0;
#pragma unroll
  for (std::uint32_t k = 0; k < Count; ++k) {
    if (k >= count) continue;
    const auto bits = reinterpret_cast<std::uintptr_t>(places[k]);
    if (SourcePlace::is_in_slot(bits)) {
      if (where.has_line) missing |= 1U << k;
    } else {
      chunks[k] = load_chunk(reinterpret_cast<const std::byte*>(SourcePlace::address(bits)) + where.begin,
                             where.bytes);
    }
  }
  LongWait long_wait(wait.team);
  for (std::uint32_t polls = 1; Lines::any(missing != 0); ++polls) {
#pragma unroll
    for (std::uint32_t k = 0; k < Count; ++k) {
      bool found = false;
      if ((missing & 1U << k) != 0)
        found = Lines::load(places[k] + wait.lines.shift + where.line, wait.lines.round, chunks[k]);
      if (Lines::agreed(found)) missing &= ~(1U << k);
    }
    if (is_turn_to_look(polls) && Lines::any(long_wait.is_aborted(Lines::speaks()))) return false;
  }
  return true;
}

/// Copies the lane's chunk. Returns false if the abort word is set before it has come.
template <class Lines>
__device__ inline bool copy_lines(std::byte* const* pointers, const Get& get, const LineWait& wait) {
  std::byte* const source[] = {get.inputs[0]};
  Chunk value[1];
  if (!get_chunks<Lines>(source, 1, get.where, wait, value)) return false;
  store_chunk(value[0], get.output, get.where.bytes);
  for (std::uint32_t t = 1; t < get.outputs.count; ++t)
    store_chunk(value[0], pointers[get.outputs.first + t] + get.where.begin, get.where.bytes);
  return true;
}

/// The sums that a member makes and others receive.
struct Relay {
  TableView<FanOutEntry> puts;  ///< by sum; there may be none
  RoundLines lines;
  bool exists;
};

template <class Lines>
__device__ inline Get get_of(const SumEntry& entry, std::uint32_t number, std::uint32_t element_bytes,
                             std::byte* const* pointers, std::uint32_t input_count, std::uint32_t tile,
                             std::uint32_t lane) {
  const ChunkPlace where = Lines::place(entry.count * element_bytes, tile - entry.first_tile, lane);
  std::byte* const* const inputs = pointers + entry.first_input;
  return {.where = where,
          .inputs = {inputs[0], input_count > 1 ? inputs[1] : nullptr},
          .output = pointers[entry.first_output] + where.begin,
          .first_input = entry.first_input,
          .outputs = {},
          .entry = number};
}
/// Sums the lane's chunk, for a sum with one output. Returns false if the abort word is set before its inputs
/// have come. Inputs are added in ascending order.
template <class Lines, class Op>
__device__ inline bool sum_lines(const Op& op, std::byte* const* pointers, std::uint32_t input_count,
                                 const Get& get, const LineWait& wait, const Relay& relay) {
  constexpr std::uint32_t in_flight = Get::inputs_at_hand;
  SumTotals<Op, Chunk> totals;
  std::byte* inputs[in_flight] = {get.inputs[0], get.inputs[1]};
  for (std::uint32_t base = 0;;) {
    Chunk chunks[in_flight] = {};
    const std::uint32_t left = input_count - base;
    if (!get_chunks<Lines>(inputs, left < in_flight ? left : in_flight, get.where, wait, chunks))
      return false;
#pragma unroll
    for (std::uint32_t k = 0; k < in_flight; ++k) totals.add(op, chunks[k], base + k, k < left);
    base += in_flight;
    if (base >= input_count) break;
#pragma unroll
    for (std::uint32_t k = 0; k < in_flight; ++k) {
      if (base + k < input_count) inputs[k] = pointers[get.first_input + base + k];
    }
  }
  const Chunk result = totals.result(op, input_count);
  if (relay.exists)
    put_chunk<Lines>(result, get.where, targets_of(relay.puts.entries[get.entry]), relay.puts.pointers,
                     relay.lines);
  store_chunk(result, get.output, get.where.bytes);
  return true;
}

}  // namespace tutti::backend::cuda
