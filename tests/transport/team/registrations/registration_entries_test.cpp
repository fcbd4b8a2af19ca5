// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/registration_entries.hpp"

#include "os/shared_memory.hpp"
#include "support/machines/rank_components.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <gtest/gtest.h>

/// The entries of rank 0 of three; the tests do what the other two do.
namespace tutti::transport::team {
namespace {

using test::RankComponents;

constexpr std::uint32_t capacity = 2;

class RankWithEntries : public testing::Test {
 protected:
  /// The rank of this number opens or closes what the entry says. Without an address, it could not open it.
  void follow(std::uint32_t entry, std::size_t rank, std::uint64_t address = 0x1000) {
    RegistrationView& view = entries_.views_of(entry)[rank];
    view.address = address;
    view.version = entries_.version_of(entry);
  }
  void all_follow(std::uint32_t entry) {
    for (const std::size_t rank : {1U, 2U}) follow(entry, rank);
  }
  void leave(std::size_t rank) { components_.state.status(rank).state = RankStatus::left; }
  /// The rank has made a call that this one has not made.
  void let_wait(std::size_t rank, bool waits = true) {
    components_.state.status(rank).last_sequence.store(waits ? 1000 : 0);
  }
  [[nodiscard]] std::uint32_t bell(std::size_t rank) const {
    return entries_.tables().registrations[rank].bell.value.load();
  }

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(3)))};
  RankComponents components_{memory_.data(), RankComponents::alike(3), 0};
  RegistrationEntries entries_{components_.state.registration_tables(components_.membership),
                               components_.calls, capacity};
};

TEST_F(RankWithEntries, OneIsUnusedAgainWhenAllOthersHaveClosedIt) {
  EXPECT_EQ(entries_.unused(), 0U);
  entries_.open(0, {}, nullptr);
  entries_.open(1, {}, nullptr);
  EXPECT_EQ(entries_.unused(), std::nullopt);
  for (const std::uint32_t entry : {0U, 1U}) all_follow(entry);
  EXPECT_EQ(entries_.unused(), std::nullopt);
  entries_.close(1);
  follow(1, 2);
  EXPECT_EQ(entries_.unused(), std::nullopt) << "rank 1 still has it open";
  follow(1, 1);
  EXPECT_EQ(entries_.unused(), 1U);
}

TEST_F(RankWithEntries, OthersFindTheHandleAndAreRung) {
  const std::uint32_t before = bell(2);
  const backend::MemoryHandle handle{.bytes = {std::byte{7}}};
  entries_.open(1, handle, nullptr);
  const RegistrationTable& table = entries_.tables().own();
  EXPECT_EQ(table.used.load(), 2U);
  EXPECT_EQ(table.entries[1].handle.bytes, handle.bytes);
  EXPECT_TRUE(RegistrationTable::is_open(entries_.version_of(1)));
  EXPECT_NE(bell(2), before);
  EXPECT_EQ(bell(0), 0U) << "it knows itself";
  const std::uint32_t when_open = bell(2);
  entries_.close(1);
  EXPECT_FALSE(RegistrationTable::is_open(entries_.version_of(1)));
  EXPECT_NE(bell(2), when_open);
  entries_.open(0, {}, nullptr);
  EXPECT_EQ(table.used.load(), 2U);
}

TEST(RegistrationEntries, RanksOfTheSameProcessHaveThemOpenAtOnce) {
  RankComponents::Ranks ranks = RankComponents::alike(3);
  ranks[0].process = ranks[2].process = 7;
  const SharedMemory memory(SharedState::bytes(RankComponents::shape_of(ranks)));
  RankComponents components(memory.data(), ranks, 0);
  RegistrationEntries entries(components.state.registration_tables(components.membership), components.calls,
                              capacity);
  std::byte segment{};
  entries.open(0, {}, &segment);
  const std::span<RegistrationView> views = entries.views_of(0);
  EXPECT_EQ(views[2].version.load(), entries.version_of(0));
  EXPECT_EQ(views[2].address.load(), reinterpret_cast<std::uintptr_t>(&segment));
  EXPECT_EQ(views[1].version.load(), 0U) << "a rank of another process opens it itself";
  entries.close(0);
  EXPECT_EQ(views[2].version.load() + 1, entries.version_of(0)) << "until its calls are over";
}

TEST_F(RankWithEntries, WhoHasLeftHasClosedEverythingAndOpensNothing) {
  entries_.open(0, {}, nullptr);
  follow(0, 1);
  leave(2);
  EXPECT_FALSE(entries_.is_followed(0)) << "it will never be open there";
  entries_.close(0);
  EXPECT_FALSE(entries_.is_followed(0));
  follow(0, 1);
  EXPECT_TRUE(entries_.is_followed(0));
}

TEST_F(RankWithEntries, WhoCouldNotOpenASegmentSaysWhy) {
  entries_.open(0, {}, nullptr);
  all_follow(0);
  EXPECT_EQ(entries_.failure_of(0), "");
  constexpr std::string_view why = "the driver refuses";
  std::ranges::copy(why, entries_.tables().registrations[2].failure.begin());
  follow(0, 2, 0);
  EXPECT_EQ(entries_.failure_of(0), "rank 2 cannot open memory of rank 0: the driver refuses");
}

TEST_F(RankWithEntries, OneIsHeldForLongByWhoIsBehindAndClosesNothing) {
  entries_.open(0, {}, nullptr);
  all_follow(0);
  entries_.close(0);
  EXPECT_FALSE(entries_.is_held_for_long(0));
  EXPECT_FALSE(entries_.would_be_held_for_long());
  let_wait(1);
  EXPECT_TRUE(entries_.is_held_for_long(0));
  EXPECT_TRUE(entries_.would_be_held_for_long());
  follow(0, 1);
  EXPECT_FALSE(entries_.is_held_for_long(0)) << "rank 1 has closed it";
  EXPECT_TRUE(entries_.would_be_held_for_long()) << "of another one";
  let_wait(1, false);
  entries_.tables().registrations[2].is_held_up = true;
  EXPECT_TRUE(entries_.is_held_for_long(0));
  EXPECT_TRUE(entries_.would_be_held_for_long());
  leave(2);
  EXPECT_FALSE(entries_.would_be_held_for_long());
}

}  // namespace
}  // namespace tutti::transport::team
