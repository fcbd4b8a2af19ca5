// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernel_table.cuh"
#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/cuda/kernels/team_table.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <gtest/gtest.h>

/// How work is cut into tiles, and found again; no tile is run.
namespace tutti::backend::cuda {
namespace {

/// Looks for every tile of a table, against counting through it. Returns how many were not in the likely
/// entry.
std::uint32_t expect_tiles_found(const std::vector<std::uint64_t>& segment_bytes) {
  std::vector<FanOutSegment> segments;
  for (const std::uint64_t bytes : segment_bytes)
    segments.push_back({.row_bytes = bytes, .rows = 1, .source = 0, .first_target = 1, .target_count = 1});
  const std::vector<std::byte*> pointers(2, nullptr);
  SegmentTable table;
  build_table(FanOut{segments, pointers}, 132, table);
  const auto* const entries = view_of<FanOutEntry>(table.blob.data(), table.shape).entries;
  std::uint32_t index = 0;
  std::uint32_t missed = 0;
  std::uint32_t elsewhere = 0;
  for (std::uint32_t tile = 0; tile < table.shape.tile_count; ++tile) {
    while (index + 1 < table.shape.segment_count && entries[index + 1].first_tile <= tile) ++index;
    if (&find_entry(entries, table.shape, tile) != entries + index) ++missed;
    if (likely_entry(table.shape, tile) != index) ++elsewhere;
  }
  EXPECT_EQ(missed, 0U) << "of " << table.shape.tile_count << " tiles in " << segment_bytes.size()
                        << " segments";
  return elsewhere;
}

TEST(CudaTables, EachTileIsFoundInItsSegment) {
  std::mt19937_64 engine{20};
  const auto draw = [&](std::uint64_t least, std::uint64_t greatest) {
    return std::uniform_int_distribution<std::uint64_t>(least, greatest)(engine);
  };
  for (const std::size_t count : {1U, 2U, 3U, 16U, 1000U}) {
    for (const std::uint64_t bytes : {64U, 1024U, 5000U, 100'000U})
      EXPECT_EQ(expect_tiles_found(std::vector<std::uint64_t>(count, bytes)), 0U)
          << count << " segments of " << bytes;
    for (const std::size_t large : {std::size_t{0}, count / 2, count - 1}) {
      std::vector<std::uint64_t> uneven(count, 64);
      uneven[large] = 50 << 20;
      expect_tiles_found(uneven);
    }
    for (int draws = 0; draws < 20; ++draws) {
      std::vector<std::uint64_t> random(count);
      std::ranges::generate(random, [&] { return draw(1, std::uint64_t{1} << draw(0, 18)); });
      expect_tiles_found(random);
    }
  }
}

TEST(CudaTables, LargeWorkIsCutIntoManyEqualTilesAndSmallWorkIntoFew) {
  SegmentTable table;
  const std::vector<std::byte*> pointers(2, nullptr);
  const auto tiles_of = [&](std::uint64_t bytes) {
    const std::vector<FanOutSegment> segments{{bytes, 0, 0, 1, 0, 1, 1}};
    build_table(FanOut{segments, pointers}, 132, table);
    return table.shape.tile_count;
  };
  EXPECT_EQ(tiles_of(0), 0U);
  EXPECT_EQ(tiles_of(1), 1U);
  EXPECT_EQ(tiles_of(64 << 10), 128U);
  EXPECT_EQ(tiles_of(1 << 30), 131072U);
}

TEST(CudaTables, ATeamsSmallPayloadTakesOneBlockAndALargeOneNoMoreThanItMay) {
  TeamTable table;
  std::vector<std::byte*> pointers(2, nullptr);
  const auto grid_of = [&](std::uint64_t bytes, int multiprocessors,
                           std::uint32_t most_multiprocessors = all_multiprocessors) {
    const std::vector<FanOutSegment> segments{{bytes, 0, 0, 1, 0, 1, 1}};
    TeamRound task;
    task.puts = {segments, pointers};
    task.most_multiprocessors = most_multiprocessors;
    build_table(task, multiprocessors, table);
    return grid_for(table.shape, multiprocessors, most_multiprocessors);
  };
  EXPECT_EQ(grid_of(0, 132).blocks, 1U);
  EXPECT_EQ(grid_of(0, 132).warps, 1U);
  EXPECT_EQ(grid_of(3'000, 132).warps, 2U);
  EXPECT_EQ(grid_of(16 << 10, 132).blocks, 1U);
  EXPECT_EQ(grid_of(64 << 10, 132).blocks, 3U);
  EXPECT_EQ(grid_of(16 << 20, 132).blocks, most_team_blocks);
  EXPECT_EQ(grid_of(16 << 20, 10).blocks, 10U);
  for (const int multiprocessors : {10, 108, 132}) {
    for (std::uint32_t most = 1; most <= most_team_blocks; ++most) {
      const TeamGrid grid = grid_of(16 << 20, multiprocessors, most);
      EXPECT_EQ(grid.blocks, std::min(most, static_cast<std::uint32_t>(multiprocessors)));
      EXPECT_EQ(grid.warps, team_warps_per_block);
    }
    EXPECT_EQ(grid_of(16 << 20, multiprocessors, 0).blocks, 1U);
    EXPECT_EQ(grid_of(16 << 10, multiprocessors, 33).blocks, 1U);
  }
}

TEST(CudaTables, GridsThatFitTwiceHoldNoMoreThanOneMay) {
  TeamTable table;
  const auto grid_of = [&](std::uint32_t tiles, int multiprocessors,
                           std::uint32_t most_multiprocessors = all_multiprocessors) {
    table.shape.puts.tile_count = tiles;
    return grid_for(table.shape, multiprocessors, most_multiprocessors);
  };
  EXPECT_TRUE(grid_of(1, 132).fits_twice);
  EXPECT_TRUE(grid_of(43 * team_warps_per_block, 132).fits_twice);
  EXPECT_FALSE(grid_of(44 * team_warps_per_block, 132).fits_twice);
  EXPECT_TRUE(grid_of(8 * team_warps_per_block, 132, 16).fits_twice);
  EXPECT_FALSE(grid_of(9 * team_warps_per_block, 132, 16).fits_twice)
      << "so many multiprocessors, and no more";
  EXPECT_FALSE(grid_of(1, 132, 1).fits_twice) << "the only block there may be";
  for (const int multiprocessors : {1, 10, 108, 132}) {
    for (std::uint32_t most = 1; most <= most_team_blocks; ++most) {
      for (std::uint32_t blocks = 1; blocks <= most_team_blocks; ++blocks) {
        const TeamGrid grid = grid_of(blocks * team_warps_per_block, multiprocessors, most);
        EXPECT_LE(grid.fits_twice ? 2 * grid.blocks : grid.blocks, most);
      }
    }
  }
}

TEST(CudaTables, MoreTilesThanCanBeCountedAreRefused) {
  SegmentTable table;
  const std::vector<std::byte*> pointers(2, nullptr);
  const std::vector<FanOutSegment> segments{{std::uint64_t{1} << 46, 0, 0, 1, 0, 1, 1}};
  EXPECT_THROW(build_table(FanOut{segments, pointers}, 132, table), Error);
}

}  // namespace
}  // namespace tutti::backend::cuda
