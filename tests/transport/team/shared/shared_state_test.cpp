// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/shared_state.hpp"

#include "os/shared_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport::team {
namespace {

constexpr SharedState::Shape three_ranks{
    .ranks = 3, .members = 5, .has_registrations = true, .has_links = true};

struct PlacedPart {
  std::uintptr_t begin;
  std::uintptr_t end;
  std::size_t alignment;
};

template <class T>
void add_part(std::vector<PlacedPart>& parts, T& part, std::size_t count = 1) {
  const auto begin = reinterpret_cast<std::uintptr_t>(&part);
  parts.push_back({begin, begin + count * sizeof(T), alignof(T)});
}

TEST(SharedState, PartsAreAlignedAndDoNotOverlap) {
  const std::size_t bytes = SharedState::bytes(three_ranks);
  const SharedMemory memory(bytes);
  const SharedState state(memory.data(), three_ranks);
  const Membership membership(1, std::vector<Membership::Rank>{{"", 1}, {"", 2}, {"", 2}}, {0, 1});
  const RegistrationTables tables = state.registration_tables(membership);
  std::vector<PlacedPart> parts;
  add_part(parts, state.abort_word());
  for (std::size_t rank = 0; rank < 3; ++rank) {
    add_part(parts, state.status(rank));
    add_part(parts, state.mailbox(rank, Mailbox::all));
    add_part(parts, state.mailbox(rank, Mailbox::part));
    add_part(parts, tables.registrations[rank]);
    for (const std::size_t entry : {std::size_t{0}, RegistrationTable::capacity - 1})
      add_part(parts, tables.views_of(rank, entry).front(), 5);
  }
  for (std::size_t member = 0; member < 5; ++member) {
    add_part(parts, state.done_flag(member));
    add_part(parts, state.passed_flag(member));
    for (std::size_t to = 0; to < 5; ++to) {
      add_part(parts, state.link_log(member, to, SharedState::LinkEnd::sender));
      add_part(parts, state.link_log(member, to, SharedState::LinkEnd::receiver));
    }
  }
  add_part(parts, state.first_calls());
  std::ranges::sort(parts, {}, &PlacedPart::begin);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
  EXPECT_EQ(parts.front().begin, begin);
  EXPECT_LE(parts.back().end, begin + bytes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(parts[i].begin % parts[i].alignment, 0U) << i;
    if (i > 0) {
      EXPECT_GE(parts[i].begin, parts[i - 1].end) << i;
    }
  }
  EXPECT_EQ(&tables.own(), &tables.registrations[1]);
}

TEST(SharedState, RegistrationsTakeNoMemoryWhereNobodyRegisters) {
  SharedState::Shape without = three_ranks;
  without.has_registrations = false;
  EXPECT_LE(SharedState::bytes(without) + 3 * sizeof(RegistrationTable), SharedState::bytes(three_ranks));
}

TEST(SharedState, EveryRankHasRoomForALongReasonBehindTheAbortWord) {
  const SharedMemory memory(SharedState::bytes(three_ranks));
  const SharedState state(memory.data(), three_ranks);
  const std::string reason(sizeof(backend::AbortReason::bytes), 'x');
  EXPECT_TRUE(state.abort_word().set(2, 7, reason));
  EXPECT_EQ(state.abort_word().reason().text(), reason);
  const std::span<const std::byte> first_status = std::as_bytes(std::span(&state.status(0), 1));
  EXPECT_TRUE(std::ranges::all_of(first_status, [](std::byte byte) { return byte == std::byte{}; }));
}

TEST(SharedState, TellsWhoIsBehind) {
  const SharedMemory memory(SharedState::bytes(three_ranks));
  const SharedState state(memory.data(), three_ranks);
  EXPECT_TRUE(state.ranks_behind(0).empty());
  state.status(1).last_sequence.store(4);
  EXPECT_EQ(state.ranks_behind(4), (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(state.ranks_behind(5), (std::vector<std::size_t>{0, 1, 2}));
}

}  // namespace
}  // namespace tutti::transport::team
