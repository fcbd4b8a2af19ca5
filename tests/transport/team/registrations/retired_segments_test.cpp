// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/retired_segments.hpp"

#include "os/shared_memory.hpp"
#include "support/machines/rank_components.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

/// What keeps memory of rank 0 of three from being freed; the tests do what the other two do.
namespace tutti::transport::team {
namespace {

using test::RankComponents;
using Hold = SegmentObserver::Hold;

class RetiringRank : public testing::Test {
 protected:
  /// A segment at `address` was the entry's; the others have it open, and are told to close it.
  void retire(const std::byte* address, std::uint32_t entry) {
    for (const std::size_t member : {1U, 2U}) follow(entry, member, 1);
    tables_.own().entries[entry].version = 2;
    RegisteredSegments segments;
    segments.emplace(address, RegisteredSegment{.bytes = 100, .entry = entry});
    retired_.add(segments.extract(segments.begin()));
  }
  void follow(std::uint32_t entry, std::size_t member, std::uint64_t version = 2) {
    tables_.views_of(0, entry)[member].version = version;
  }
  [[nodiscard]] Hold hold_on(const std::byte* address) {
    return retired_.hold_on(
        address, [&](std::size_t rank) { return has_left_[rank]; },
        [&](std::uint32_t entry) { return entry == lasting_entry_; });
  }

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(3)))};
  RankComponents components_{memory_.data(), RankComponents::alike(3), 0};
  const RegistrationTables tables_ = components_.state.registration_tables(components_.membership);
  RetiredSegments retired_{tables_};
  std::array<bool, 3> has_left_{};
  std::uint32_t lasting_entry_ = 1000;
  const std::array<std::byte, 2> places_{};
  const std::byte* const first_ = &places_[0];
  const std::byte* const second_ = &places_[1];
};

TEST_F(RetiringRank, MemoryIsHeldUntilAllOthersHaveClosedIt) {
  retire(first_, 0);
  EXPECT_EQ(hold_on(first_), Hold::passing);
  EXPECT_EQ(hold_on(second_), Hold::none);
  follow(0, 1);
  EXPECT_EQ(hold_on(first_), Hold::passing);
  follow(0, 2);
  EXPECT_EQ(hold_on(first_), Hold::none);
  follow(0, 2, 1);
  EXPECT_EQ(hold_on(first_), Hold::none) << "it has been forgotten";
}

TEST_F(RetiringRank, WhoHasLeftHoldsNothing) {
  retire(first_, 0);
  follow(0, 1);
  has_left_[2] = true;
  EXPECT_EQ(hold_on(first_), Hold::none);
}

TEST_F(RetiringRank, MemoryThatIsClosedOnlyAfterSomeTimeIsHeldForLong) {
  lasting_entry_ = 3;
  retire(first_, 3);
  EXPECT_EQ(hold_on(first_), Hold::lasting);
}

TEST_F(RetiringRank, AllEntriesThatMemoryHasHadCount) {
  lasting_entry_ = 1;
  retire(first_, 0);
  retire(first_, 1);
  EXPECT_EQ(hold_on(first_), Hold::lasting);
  for (const std::size_t member : {1U, 2U}) follow(1, member);
  EXPECT_EQ(hold_on(first_), Hold::passing);
  for (const std::size_t member : {1U, 2U}) follow(0, member);
  EXPECT_EQ(hold_on(first_), Hold::none);
}

TEST_F(RetiringRank, AnEntryThatServesAnotherSegmentHoldsNothing) {
  retire(first_, 0);
  retire(second_, 1);
  retired_.forget(0);
  tables_.own().entries[0].version = 3;
  EXPECT_EQ(hold_on(first_), Hold::none);
  EXPECT_EQ(hold_on(second_), Hold::passing);
}

}  // namespace
}  // namespace tutti::transport::team
