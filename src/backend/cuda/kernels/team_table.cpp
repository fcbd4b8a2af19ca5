// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/team_table.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace tutti::backend::cuda {
namespace {

// The tile is as much as a warp loads at once, so that a small payload waits for a peer's memory once, and
// comes in few blocks: four vectors per lane of a copy, one vector per lane of each input of a sum.
constexpr std::uint32_t smallest_copy_tile = 4 * smallest_tile;
static_assert(smallest_copy_tile == smallest_team_copy_tile && smallest_team_tile <= smallest_tile);
constexpr std::uint32_t smallest_sum_tile = smallest_tile;

/// Returns true if copies of a direct round read what others expose, instead of writing there.
bool reads_exposed(const TeamRound& task) {
  if (!task.swaps) return !task.writes_exposed;
  return std::ranges::any_of(task.copies.segments, [&](const FanOutSegment& segment) {
    return !SourcePlace::is_own(reinterpret_cast<std::uintptr_t>(task.copies.pointers[segment.source]));
  });
}

}  // namespace

std::uint32_t most_blocks(int multiprocessors, std::uint32_t most_multiprocessors) noexcept {
  const auto chip = static_cast<std::uint32_t>(std::max(multiprocessors, 1));
  return std::min({chip, most_team_blocks, std::max(most_multiprocessors, 1U)});
}

void build_table(const TeamRound& task, int multiprocessors, TeamTable& table) {
  table.bytes = 0;
  TeamShape& shape = table.shape;
  std::ranges::copy(task.windows, reinterpret_cast<std::byte**>(extend(table, task.windows.size_bytes())));
  shape.reader_count = static_cast<std::uint32_t>(task.readers.size());
  shape.source_count = static_cast<std::uint32_t>(task.sources.size());
  shape.readers_offset = static_cast<std::uint32_t>(table.bytes);
  std::byte* const numbers = extend(table, task.readers.size_bytes() + task.sources.size_bytes());
  std::ranges::copy(std::as_bytes(task.readers), numbers);
  std::ranges::copy(std::as_bytes(task.sources), numbers + task.readers.size_bytes());

  std::ranges::copy(task.exposed, reinterpret_cast<std::byte**>(extend(table, task.exposed.size_bytes())));

  const std::uint32_t warps = most_blocks(multiprocessors, task.most_multiprocessors) * team_warps_per_block;
  const Cut low_latency_cut{.exact_bytes = low_latency_tile(task.layout.lines)};
  const Cut puts_cut = task.is_low_latency ? low_latency_cut : Cut{warps, smallest_copy_tile};
  Cut copies_cut = puts_cut;
  if (task.is_direct && reads_exposed(task)) copies_cut.far_side = FarSide::source;
  const Cut sums_cut = task.is_low_latency ? low_latency_cut : Cut{warps, smallest_sum_tile};
  shape.puts_offset = static_cast<std::uint32_t>(table.bytes);
  shape.puts = append_table(task.puts, puts_cut, table);
  shape.gets_offset = static_cast<std::uint32_t>(table.bytes);
  shape.gets = task.reductions.segments.empty() ? append_table(task.copies, copies_cut, table)
                                                : append_table(task.reductions, sums_cut, table);
  static const TeamRound no_relay;
  const TeamRound& relay = task.relay != nullptr ? *task.relay : no_relay;
  shape.relay_puts_offset = static_cast<std::uint32_t>(table.bytes);
  shape.relay_puts = append_table(relay.puts, puts_cut, table);
  shape.relay_gets_offset = static_cast<std::uint32_t>(table.bytes);
  shape.relay_gets = append_table(relay.copies, puts_cut, table);
}

TeamGrid grid_for(const TeamShape& shape, int multiprocessors, std::uint32_t most_multiprocessors) noexcept {
  const std::uint32_t tiles =
      std::max({shape.puts.tile_count, shape.gets.tile_count, shape.relay_gets.tile_count, 1U});
  const std::uint32_t wanted = tiles / team_warps_per_block + (tiles % team_warps_per_block != 0 ? 1U : 0U);
  const std::uint32_t most = most_blocks(multiprocessors, most_multiprocessors);
  const std::uint32_t blocks = std::min(wanted, most);
  return {.blocks = blocks, .warps = std::min(tiles, team_warps_per_block), .fits_twice = 2 * blocks <= most};
}

}  // namespace tutti::backend::cuda
