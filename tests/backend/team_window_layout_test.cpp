// SPDX-License-Identifier: Apache-2.0
#include "backend/team_links.hpp"
#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::backend {
namespace {

struct Area {
  std::size_t begin;
  std::size_t end;
};

/// All that lies in a window.
std::vector<Area> areas_of(const TeamWindowLayout& layout) {
  std::vector<Area> areas;
  const auto add = [&](std::size_t begin, std::size_t bytes) {
    if (bytes != 0) areas.push_back({begin, begin + bytes});
  };
  for (std::uint32_t member = 0; member < layout.members; ++member) {
    add(layout.finished_offset(member), sizeof(SharedFlag));
    for (std::uint32_t round = 0; round < TeamWindowLayout::slot_count; ++round) {
      add(layout.ready_offset(member, round), sizeof(SharedFlag));
      add(layout.taken_offset(member, round), sizeof(SharedFlag));
      for (std::uint32_t index = 0; index < TeamWindowLayout::exposed_lines; ++index)
        add(layout.exposed_line_offset(member, round, index), sizeof(TeamLine));
    }
    for (std::uint32_t lane = 0; lane < layout.all_link_lanes(); ++lane) {
      const bool is_of_lines = lane >= layout.link_lanes;
      add(layout.link_taken_offset(member, lane), sizeof(SharedFlag));
      for (std::uint32_t before = 0; before < TeamWindowLayout::link_slots; ++before) {
        if (is_of_lines) {
          add(layout.link_lines_offset(member, lane, before),
              TeamWindowLayout::bytes_in_lines(TeamWindowLayout::largest_line_piece));
        } else {
          add(layout.link_label_offset(member, lane, before), sizeof(LinkLabel));
          add(layout.link_slot_offset(member, lane, before), layout.link_slot_bytes);
        }
      }
      if (is_of_lines) continue;
      add(layout.link_ready_offset(member, lane), sizeof(SharedFlag));
      add(layout.link_invitation_offset(member, lane), sizeof(SharedFlag));
    }
  }
  for (std::uint32_t round = 0; round < TeamWindowLayout::slot_count; ++round) {
    add(layout.inboxes_offset() + layout.inbox_shift(round), layout.inbox_bytes);
    add(layout.slots_offset() + layout.slot_shift(round), layout.slot_bytes);
  }
  return areas;
}

TEST(TeamWindowLayout, KeepsApartWhatLiesInAWindow) {
  for (const std::uint32_t members : {2U, 3U, 8U}) {
    for (const std::uint32_t lanes : {0U, 1U, 32U}) {
      for (const std::uint32_t line_lanes : {0U, 1U, 64U}) {
        const TeamWindowLayout layout{.members = members,
                                      .slot_bytes = 2 * TeamWindowLayout::alignment,
                                      .inbox_bytes = 3 * TeamWindowLayout::alignment,
                                      .link_lanes = lanes,
                                      .link_slot_bytes = 5 * TeamWindowLayout::link_alignment,
                                      .line_lanes = line_lanes};
        std::vector<Area> areas = areas_of(layout);
        std::ranges::sort(areas, {}, &Area::begin);
        for (std::size_t i = 1; i < areas.size(); ++i) EXPECT_LE(areas[i - 1].end, areas[i].begin);
        EXPECT_LE(areas.back().end, layout.bytes());
        // What is not zero at first comes last.
        EXPECT_LE(layout.link_lines_offset(members, lanes, 0), layout.slots_offset());
      }
    }
  }
}

TEST(TeamWindowLayout, CutsMessagesThatGoInLinesIntoPiecesThatAreUnderWayAtOnce) {
  for (const std::uint32_t line_lanes : {1U, 3U, 64U, 256U}) {
    const TeamWindowLayout layout{.members = 2, .line_lanes = line_lanes};
    const std::uint64_t most = layout.most_in_lines();
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{256},
                                      std::uint64_t{257}, most / 4, most / 4 + 1, most - 1, most}) {
      ASSERT_TRUE(layout.goes_in_lines(bytes));
      const std::uint64_t piece = layout.line_piece_bytes(bytes);
      const std::uint64_t pieces = layout.line_pieces(bytes);
      EXPECT_EQ(piece % TeamWindowLayout::smallest_line_piece, 0U);
      EXPECT_LE(piece, TeamWindowLayout::largest_line_piece);
      EXPECT_GE(pieces * piece, bytes);
      EXPECT_LE(pieces, std::uint64_t{line_lanes} * TeamWindowLayout::link_slots);
      EXPECT_TRUE(pieces == 1 || (pieces - 1) * piece < bytes) << "the last piece has bytes";
    }
    EXPECT_FALSE(layout.goes_in_lines(most + 1));
    EXPECT_EQ(layout.line_bytes(most), most);
    EXPECT_EQ(layout.line_bytes(most + 1), 0U);
    EXPECT_EQ(layout.line_pieces(0), 1U);
  }
  EXPECT_FALSE((TeamWindowLayout{.members = 2}.goes_in_lines(0)));
}

TEST(TeamLinks, OfLargeMessagesAloneUseTheFirstLaneOfLinesToo) {
  const TeamWindowLayout layout{.members = 2, .link_lanes = 4, .link_slot_bytes = 4096, .line_lanes = 8};
  const std::vector<LinkMessage> small(2, {.bytes = 1000});
  const std::vector<LinkMessage> large(1, {.bytes = layout.most_in_lines() + 1});
  TeamLinks task;
  task.layout = layout;
  task.messages = small;
  EXPECT_EQ(task.lanes_used(), 0U);
  EXPECT_EQ(task.line_lanes_used(), 4U);
  task.messages = large;
  EXPECT_EQ(task.lanes_used(), 4U);
  EXPECT_EQ(task.line_lanes_used(), 1U);
}

TEST(TeamLinks, MarkLinesOfOtherPiecesAndMessagesOtherwise) {
  std::set<std::uint64_t> marks{0};  // of lines that nobody has written
  std::size_t count = 1;
  for (const std::uint64_t bytes : {0U, 1U, 4096U, 1U << 20U}) {
    for (const std::uint32_t dtype : {0U, 1U, 255U}) {
      for (const std::uint32_t pieces : {0U, 1U, 5U, ~0U}) {
        marks.insert(line_mark({.bytes = bytes, .dtype = dtype}, pieces));
        EXPECT_EQ(marks.size(), ++count);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::backend
