// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/pieces.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// How flows and reductions are cut: everything once, at the right places.
namespace tutti::transport {
namespace {

using Sizes = std::vector<std::uint64_t>;

TEST(SplitEvenly, CoversEveryItemOnceInPartsThatDifferByLessThanTheAlignment) {
  const std::vector<Sizes> lists{{1'000'000}, {3, 0, 70'000, 511, 512, 513}, {0}, Sizes(100, 1000), {7}};
  for (const Sizes& sizes : lists) {
    const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    for (const std::uint64_t alignment : {1U, 16U, 512U}) {
      for (std::size_t parts = 1; parts <= 8; ++parts) {
        const std::vector<std::vector<Slice>> split = split_evenly(sizes, parts, alignment);
        ASSERT_EQ(split.size(), parts);
        Sizes covered(sizes.size());
        std::uint64_t end = 0;  // of the part, in the concatenation of all
        for (std::size_t part = 0; part < parts; ++part) {
          for (const Slice& slice : split[part]) {
            EXPECT_EQ(slice.begin, covered[slice.item]) << "in order, without gaps";
            EXPECT_LT(slice.begin, slice.end);
            EXPECT_TRUE(slice.end == sizes[slice.item] || slice.end % alignment == 0);
            covered[slice.item] = slice.end;
            end += slice.end - slice.begin;
          }
          const std::uint64_t ideal = total * (part + 1) / parts;
          EXPECT_LE(end, part + 1 == parts ? total : ideal);
          EXPECT_GT(end + alignment, ideal) << "part " << part << " of " << parts;
        }
        EXPECT_EQ(covered, sizes);
      }
    }
  }
}

TEST(SplitEvenly, DoesNotOverflow) {
  constexpr std::uint64_t huge = std::uint64_t{1} << 62U;
  const std::vector<std::vector<Slice>> split = split_evenly(Sizes{huge}, 8, 512);
  for (std::size_t part = 0; part < 8; ++part) {
    ASSERT_EQ(split[part].size(), 1U);
    EXPECT_EQ(split[part][0].end - split[part][0].begin, huge / 8);
  }
}

TEST(Pieces, CoverTheBytesThatAreAskedForInAtMostThreeRectangles) {
  const Flow flow{.source = {.buffer = 1, .offset = 1000},
                  .targets = {},
                  .row_bytes = 10,
                  .rows = 5,
                  .source_pitch = 16,
                  .target_pitch = 12};
  using Pair = std::pair<std::uint64_t, std::uint64_t>;  // where a byte comes from, and where it goes
  for (std::uint64_t begin = 0; begin <= flow.bytes(); ++begin) {
    for (std::uint64_t end = begin; end <= flow.bytes(); ++end) {
      std::vector<Pair> expected;
      for (std::uint64_t byte = begin; byte < end; ++byte)
        expected.emplace_back(1000 + byte / 10 * 16 + byte % 10, byte / 10 * 12 + byte % 10);
      std::vector<Pair> found;
      int pieces = 0;
      for_each_piece(flow, begin, end, [&](const Piece& piece) {
        ++pieces;
        EXPECT_EQ(piece.move.source.buffer, 1U);
        for (std::uint64_t row = 0; row < piece.move.rows; ++row) {
          for (std::uint64_t column = 0; column < piece.move.row_bytes; ++column) {
            found.emplace_back(piece.move.source.offset + row * piece.move.source_pitch + column,
                               piece.target_offset + row * piece.move.target_pitch + column);
          }
        }
      });
      EXPECT_EQ(found, expected) << begin << " to " << end;
      EXPECT_LE(pieces, 3);
    }
  }
}

TEST(Pieces, GoAsFarBehindEachTargetAsTheyLieInTheFlow) {
  const std::vector<Place> places{{.buffer = 3, .offset = 7}, {.buffer = 4, .offset = 0}};
  EXPECT_EQ(shifted(places, 5),
            (std::vector<Place>{{.buffer = 3, .offset = 12}, {.buffer = 4, .offset = 5}}));
}

}  // namespace
}  // namespace tutti::transport
