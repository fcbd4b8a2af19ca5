// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/team_round.hpp"

#include <cstdint>

/// Builds the argument table of the kernel for a team's round, as one blob: the addresses of all windows, the
/// numbers of the readers and of the sources, the addresses it exposes, the table of what is put, the table
/// of what is copied or added, and the same two of its relay. Everything here runs on the host and needs no
/// GPU.
namespace tutti::backend::cuda {

/// The positions of parts in the blob; passed by value beside it. The windows come first, the sources
/// directly after the readers.
struct TeamShape {
  TableShape puts;
  TableShape gets;
  TableShape relay_puts;
  TableShape relay_gets;
  std::uint32_t readers_offset = 0;  ///< all in bytes from the start of the blob
  std::uint32_t puts_offset = 0;
  std::uint32_t gets_offset = 0;
  std::uint32_t relay_puts_offset = 0;
  std::uint32_t relay_gets_offset = 0;
  std::uint32_t reader_count = 0;
  std::uint32_t source_count = 0;

  /// Returns the position of the exposed addresses, which come after the sources.
  [[nodiscard]] TUTTI_HOST_DEVICE std::uint32_t exposed_offset() const {
    constexpr std::uint32_t numbers_per_address = sizeof(std::byte*) / sizeof(std::uint32_t);
    const std::uint32_t numbers = reader_count + source_count;
    const std::uint32_t rounded = (numbers + numbers_per_address - 1) / numbers_per_address;
    return readers_offset + rounded * static_cast<std::uint32_t>(sizeof(std::byte*));
  }
};

struct TeamTable : TableBlob {
  TeamShape shape;
};

/// Returns the bytes of a message in a tile of a low-latency round, whose tiles are all alike and as small as
/// possible: 16 bytes for each lane, or what lanes have of wide lines.
[[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint32_t low_latency_tile(TeamLines lines) noexcept {
  return lines == TeamLines::narrow ? smallest_tile : smallest_tile / 128 * 120;
}
static_assert(low_latency_tile(TeamLines::wide) == smallest_team_tile && smallest_team_tile < smallest_tile);

struct TeamGrid {
  std::uint32_t blocks = 1;
  std::uint32_t warps = 1;  ///< per block
  bool fits_twice = false;  ///< two such grids hold no more than a kernel of the team may
};

/// Fills `table` for `task`. Throws Error(invalid_argument) if the work has more than 2^32 - 1 tiles.
void build_table(const TeamRound& task, int multiprocessors, TeamTable& table);
/// Returns the most blocks of a grid: no more than multiprocessors, or than the task may hold.
[[nodiscard]] std::uint32_t most_blocks(int multiprocessors, std::uint32_t most_multiprocessors) noexcept;
/// Returns a grid with one warp for each tile, as far as possible.
[[nodiscard]] TeamGrid grid_for(const TeamShape& shape, int multiprocessors,
                                std::uint32_t most_multiprocessors = all_multiprocessors) noexcept;

}  // namespace tutti::backend::cuda
