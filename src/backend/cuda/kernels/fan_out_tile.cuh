// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/kernel_table.cuh"

#include <bit>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

/// Runs one tile of a fan-out on one lane of a warp. The lanes do not communicate, so the same code can be
/// run lane by lane on the host.
namespace tutti::backend::cuda {

/// The vectors that a lane loads before it stores the first: enough loads in flight to hide the latency of a
/// peer.
inline constexpr std::uint32_t copies_in_flight = 4;

TUTTI_HOST_DEVICE inline std::uint32_t misalignment(const std::byte* address) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) % vector_bytes);
}

/// Returns the bytes from `address` to the first transaction that begins there or later.
TUTTI_HOST_DEVICE inline std::uint32_t bytes_to_transaction(const std::byte* address) {
  return static_cast<std::uint32_t>(-reinterpret_cast<std::uintptr_t>(address) % transaction_bytes);
}

/// The targets of one strip.
struct StripTargets {
  std::byte* const* pointers;
  std::uint32_t count;
  std::uint64_t offset;
  TUTTI_HOST_DEVICE std::byte* operator[](std::uint32_t index) const { return pointers[index] + offset; }
};

/// Copies bytes [0, head) and [tail, bytes) one by one; there are few.
TUTTI_HOST_DEVICE inline void copy_edges(const std::byte* source, std::byte* target, std::uint32_t head,
                                         std::uint32_t tail, std::uint32_t bytes, std::uint32_t lane) {
  for (std::uint32_t i = lane; i < head + (bytes - tail); i += warp_lanes) {
    const std::uint32_t at = i < head ? i : tail + (i - head);
    target[at] = source[at];
  }
}

/// Stores a vector at an address that is aligned to words only.
template <class Word>
TUTTI_HOST_DEVICE inline void store_in_words(const uint4& vector, std::byte* target) {
  constexpr std::uint32_t count = sizeof(vector) / sizeof(Word);
  struct Words {
    Word words[count];
  };
  const auto words = std::bit_cast<Words>(vector);
#pragma unroll
  for (std::uint32_t i = 0; i < count; ++i) reinterpret_cast<Word*>(target)[i] = words.words[i];
}

/// Copies a strip whose source and targets are equally aligned modulo the size of a word; words are stored,
/// whole vectors are loaded.
template <class Word>
TUTTI_HOST_DEVICE inline void copy_strip(const std::byte* source, const StripTargets& targets,
                                         std::uint32_t bytes, std::uint32_t lane) {
  const std::uint32_t to_boundary = (vector_bytes - misalignment(source)) % vector_bytes;
  const std::uint32_t head = to_boundary < bytes ? to_boundary : bytes;
  const std::uint32_t vectors = (bytes - head) / vector_bytes;
  const auto* from = reinterpret_cast<const uint4*>(source + head);
  for (std::uint32_t first = lane; first < vectors; first += warp_lanes * copies_in_flight) {
    uint4 values[copies_in_flight] = {};  // initialised, or the registers stay live around the loop
#pragma unroll
    for (std::uint32_t k = 0; k < copies_in_flight; ++k) {
      if (first + k * warp_lanes < vectors) values[k] = from[first + k * warp_lanes];
    }
    for (std::uint32_t t = 0; t < targets.count; ++t) {
      std::byte* const to = targets[t] + head;
#pragma unroll
      for (std::uint32_t k = 0; k < copies_in_flight; ++k) {
        if (first + k * warp_lanes < vectors)
          store_in_words<Word>(values[k], to + (first + k * warp_lanes) * vector_bytes);
      }
    }
  }
  const std::uint32_t tail = head + vectors * vector_bytes;
  if (head == 0 && tail == bytes) return;
  for (std::uint32_t t = 0; t < targets.count; ++t) copy_edges(source, targets[t], head, tail, bytes, lane);
}

/// Returns 16 bytes from offset `shift` (0 to 15) of the 32 bytes `low`, `high`.
TUTTI_HOST_DEVICE inline uint4 shifted(const uint4& low, const uint4& high, std::uint32_t shift) {
  std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  // Conditional moves by two words and by one are used because an index known only at run time would put the
  // array into memory.
#pragma unroll
  for (int i = 0; i < 6; ++i) words[i] = (shift & 8U) != 0 ? words[i + 2] : words[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = (shift & 4U) != 0 ? words[i + 1] : words[i];
  const std::uint32_t bits = (shift & 3U) * 8;
  const auto pick = [&](int i) {
    return static_cast<std::uint32_t>((std::uint64_t{words[i + 1]} << 32U | words[i]) >> bits);
  };
  return {pick(0), pick(1), pick(2), pick(3)};
}

/// The numbers of bytes of the same row, less than a vector, before and behind a strip, which may be read.
struct StripNeighbours {
  std::uint32_t before;
  std::uint32_t behind;
};

/// Copies a strip whose source and target differ in alignment. Stores are aligned; each is cut out of two
/// aligned loads that stay within the row.
TUTTI_HOST_DEVICE inline void copy_shifted_strip(const std::byte* source, std::byte* target,
                                                 std::uint32_t bytes, StripNeighbours neighbours,
                                                 std::uint32_t lane) {
  std::uint32_t head = (vector_bytes - misalignment(target)) % vector_bytes;
  const std::uint32_t shift = misalignment(source + head);
  if (head + neighbours.before < shift) head += vector_bytes;
  const std::uint32_t readable = bytes + shift + neighbours.behind;
  const std::uint32_t loads = readable < head ? 0 : (readable - head) / vector_bytes;
  const std::uint32_t most = bytes < head ? 0 : (bytes - head) / vector_bytes;
  const std::uint32_t vectors = loads < 2 ? 0 : loads - 1 < most ? loads - 1 : most;
  if (vectors == 0) {
    copy_edges(source, target, 0, 0, bytes, lane);
    return;
  }
  const auto* from = reinterpret_cast<const uint4*>(source + head - shift);
  auto* to = reinterpret_cast<uint4*>(target + head);
#pragma unroll 2
  for (std::uint32_t i = lane; i < vectors; i += warp_lanes) to[i] = shifted(from[i], from[i + 1], shift);
  copy_edges(source, target, head, head + vectors * vector_bytes, bytes, lane);
}

/// A place within a tile. Both numbers fit 16 bits, as tiles are small, because registers are scarce in this
/// loop.
struct TilePlace {
  std::uint16_t row;
  std::uint16_t column;  ///< bytes
  TUTTI_HOST_DEVICE std::uint64_t offset(std::uint64_t pitch) const { return row * pitch + column; }
};
static_assert(largest_tile < 1U << 16U);

/// Copies `rows` whole rows as one sequence of words; everything is aligned to the word.
template <class Word>
TUTTI_HOST_DEVICE inline void copy_words(const std::byte* source, const StripTargets& targets,
                                         const FanOutEntry& entry, std::uint32_t rows, std::uint32_t lane) {
  const std::uint32_t words_per_row = static_cast<std::uint32_t>(entry.row_bytes / sizeof(Word));
  const std::uint32_t words = words_per_row * rows;
  for (std::uint32_t first = lane; first < words; first += warp_lanes * copies_in_flight) {
    Word values[copies_in_flight] = {};
    TilePlace places[copies_in_flight];
#pragma unroll
    for (std::uint32_t k = 0; k < copies_in_flight; ++k) {
      const std::uint32_t word = first + k * warp_lanes;
      const std::uint32_t row = word / words_per_row;
      places[k] = {static_cast<std::uint16_t>(row),
                   static_cast<std::uint16_t>((word - row * words_per_row) * sizeof(Word))};
      if (word < words)
        values[k] = *reinterpret_cast<const Word*>(source + places[k].offset(entry.source_pitch));
    }
#pragma unroll 1
    for (std::uint32_t t = 0; t < targets.count; ++t) {
      std::byte* target = targets[t];
#pragma unroll
      for (std::uint32_t k = 0; k < copies_in_flight; ++k) {
        if (first + k * warp_lanes < words) {
          *reinterpret_cast<Word*>(target + places[k].offset(entry.target_pitch)) = values[k];
        }
      }
    }
  }
}

/// Offsets of a fan-out's sources and targets from the addresses in its table; multiples of 16 bytes.
struct FanOutShifts {
  std::uint64_t source = 0;
  std::uint64_t target = 0;
};

/// The vectors of each block that a lane loads before it stores the first of a swap.
inline constexpr std::uint32_t swaps_in_flight = 2;

/// Stores `given` to `exposed`, and what was there to `taken`, which may be `given`; all are aligned to
/// words.
template <class Word>
TUTTI_HOST_DEVICE inline void swap_words(const std::byte* given, std::byte* exposed, std::byte* taken,
                                         std::uint32_t bytes, std::uint32_t lane) {
  const std::uint32_t words = bytes / sizeof(Word);
  for (std::uint32_t first = lane; first < words; first += warp_lanes * swaps_in_flight) {
    Word theirs[swaps_in_flight] = {};
    Word own[swaps_in_flight] = {};
#pragma unroll
    for (std::uint32_t k = 0; k < swaps_in_flight; ++k) {
      const std::uint32_t word = first + k * warp_lanes;
      if (word >= words) continue;
      theirs[k] = reinterpret_cast<const Word*>(exposed)[word];
      own[k] = reinterpret_cast<const Word*>(given)[word];
    }
#pragma unroll
    for (std::uint32_t k = 0; k < swaps_in_flight; ++k) {
      const std::uint32_t word = first + k * warp_lanes;
      if (word >= words) continue;
      reinterpret_cast<Word*>(exposed)[word] = own[k];
      reinterpret_cast<Word*>(taken)[word] = theirs[k];
    }
  }
}

/// Swaps what one tile of a single row has of two blocks: stores `given` to `exposed`, and what was there to
/// `taken`, which may be `given`. Rows are multiples of vectors, and `exposed` is aligned to them.
TUTTI_HOST_DEVICE inline void swap_tile(const FanOutEntry& entry, const std::byte* given, std::byte* exposed,
                                        std::byte* taken, std::uint32_t tile, std::uint32_t lane) {
  const std::uint32_t local = tile - entry.first_tile;
  const std::uint32_t lead = bytes_to_transaction(exposed);
  const std::uint64_t begin = local == 0 ? 0 : std::uint64_t{local} * entry.tile_width + lead;
  const std::uint64_t next = (std::uint64_t{local} + 1) * entry.tile_width + lead;
  if (begin >= entry.row_bytes) return;  // the tiles before have it all
  const auto bytes = static_cast<std::uint32_t>((next < entry.row_bytes ? next : entry.row_bytes) - begin);
  given += begin;
  exposed += begin;
  taken += begin;
  const std::uint32_t misaligned = misalignment(given) | misalignment(taken);
  if (misaligned == 0) {
    swap_words<uint4>(given, exposed, taken, bytes, lane);
  } else if (misaligned % sizeof(std::uint32_t) == 0) {
    swap_words<std::uint32_t>(given, exposed, taken, bytes, lane);
  } else {
    swap_words<std::uint8_t>(given, exposed, taken, bytes, lane);
  }
}

TUTTI_HOST_DEVICE inline void copy_tile(const FanOutEntry& entry, std::byte* const* pointers,
                                        std::uint32_t tile, std::uint32_t lane, FanOutShifts shifts = {}) {
  const std::uint32_t local = tile - entry.first_tile;
  const std::uint32_t row_group = local / entry.tiles_per_row;
  const std::uint32_t first_row = row_group * entry.rows_per_tile;
  const std::uint32_t rows_left = entry.rows - first_row;
  const std::uint32_t rows = rows_left < entry.rows_per_tile ? rows_left : entry.rows_per_tile;
  const std::byte* source = pointers[entry.source] + shifts.source + first_row * entry.source_pitch;
  StripTargets targets{pointers + entry.first_target, entry.target_count,
                       shifts.target + first_row * entry.target_pitch};
  const std::uint32_t lead = bytes_to_transaction(entry.far_side == FarSide::source ? source : targets[0]);
  const std::uint32_t across = local - row_group * entry.tiles_per_row;
  const std::uint64_t column = across == 0 ? 0 : std::uint64_t{across} * entry.tile_width + lead;
  const std::uint64_t next_column = (std::uint64_t{across} + 1) * entry.tile_width + lead;
  const bool is_last = next_column >= entry.row_bytes;
  if (column >= entry.row_bytes) return;  // the tiles before have it all
  const auto bytes = static_cast<std::uint32_t>((is_last ? entry.row_bytes : next_column) - column);
  source += column;
  targets.offset += column;

  switch (entry.path) {
    case FanOutPath::words_16:
      copy_words<uint4>(source, targets, entry, rows, lane);
      return;
    case FanOutPath::words_8:
      copy_words<std::uint64_t>(source, targets, entry, rows, lane);
      return;
    case FanOutPath::words_4:
      copy_words<std::uint32_t>(source, targets, entry, rows, lane);
      return;
    case FanOutPath::words_2:
      copy_words<std::uint16_t>(source, targets, entry, rows, lane);
      return;
    case FanOutPath::words_1:
      copy_words<std::uint8_t>(source, targets, entry, rows, lane);
      return;
    case FanOutPath::strips:
    case FanOutPath::shifted_strips:
    case FanOutPath::loads:
      break;
  }
  const std::uint64_t behind = is_last ? 0 : entry.row_bytes - next_column;
  const StripNeighbours neighbours{
      across == 0 ? 0 : vector_bytes - 1,
      behind < vector_bytes ? static_cast<std::uint32_t>(behind) : vector_bytes - 1};
  for (std::uint32_t row = 0; row < rows; ++row) {
    if (entry.path == FanOutPath::strips) {
      copy_strip<uint4>(source, targets, bytes, lane);
    } else if (entry.path == FanOutPath::loads) {
      copy_strip<std::uint32_t>(source, targets, bytes, lane);
    } else {
      for (std::uint32_t t = 0; t < targets.count; ++t)
        copy_shifted_strip(source, targets[t], bytes, neighbours, lane);
    }
    source += entry.source_pitch;
    targets.offset += entry.target_pitch;
  }
}

}  // namespace tutti::backend::cuda
