// SPDX-License-Identifier: Apache-2.0
#include "os/shared_memory.hpp"
#include "ranks/memory/registering_rank.hpp"
#include "support/ranks.hpp"
#include "transport/team/registrations/registrations.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// One rank registers, and the tests decide what the other does, and when.
namespace tutti::transport::team {
namespace {

using test::expect_all_right;
using Hold = SegmentObserver::Hold;

/// Rank 0 of two, in one process: the test itself does what the other does, or does not.
class AloneRank {
 public:
  /// The other opens or closes what the entry says.
  void follow(std::size_t entry) {
    RegistrationView& view = rank_.view_of_other(entry);
    view.address = 0x1000 * (entry + 1);
    view.version = rank_.version(entry);
  }
  void expose(std::uint64_t sequence, const Tensor& tensor, std::size_t expected_entry) {
    EXPECT_TRUE((*rank_).add(sequence, 0, {address_of(tensor), tensor.nbytes()}, false));
    EXPECT_EQ(rank_.version(expected_entry) % 2, 1U);
    follow(expected_entry);
    (*rank_).wait(sequence);
    EXPECT_EQ(rank_.seen_by_other(tensor), reinterpret_cast<std::byte*>(0x1000 * (expected_entry + 1)));
  }
  /// The other comes to this state.
  void enter(std::uint32_t state) { rank_.state().status(1).state = state; }
  [[nodiscard]] Hold hold_on(const Tensor& tensor) { return (*rank_).hold_on(address_of(tensor)); }
  [[nodiscard]] Rank& rank() { return rank_; }
  [[nodiscard]] Registrations& operator*() { return *rank_; }

 private:
  SharedMemory memory_{bytes_of_two()};
  Rank rank_{memory_.data(), 0};
};

TEST(Registrations, HoldMemoryUntilOthersHaveClosedIt) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    const FullSegment unknown(0, 1);
    alone.expose(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    (*alone).will_free(address_of(unknown.first));
    EXPECT_EQ(alone.hold_on(unknown.first), Hold::none);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);

    alone.expose(2, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.rank().end_team();
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
    EXPECT_EQ(alone.hold_on(unknown.first), Hold::none);
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none) << "nobody has it open";
  });
}

TEST(Registrations, HoldMemoryForLongWhereOthersCloseNothing) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.expose(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.rank().let_other_wait(true);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
    alone.rank().let_other_wait(false);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.rank().let_other_wait(true);
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none) << "it has closed it";
  });
}

TEST(Registrations, MemoryThatOthersKeepOpenIsGivenAgainAsOftenAsOneLikes) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.expose(1, segment.first, 0);
    alone.rank().let_other_wait(true);
    for (std::size_t round = 0; round < 3 * capacity; ++round) {
      (*alone).will_free(address_of(segment.first));
      EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
      EXPECT_TRUE(alone.rank().expose(round + 2, segment.first));
    }
    EXPECT_EQ(alone.rank().used(), 1U);
    EXPECT_EQ(alone.rank().version(0), 1U) << "the other need not do anything";
    EXPECT_EQ(alone.rank().seen_by_other(segment.first), reinterpret_cast<std::byte*>(0x1000));

    (*alone).will_free(address_of(segment.first));
    alone.rank().let_other_wait(false);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing) << "now it is to close it";
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, WhoClosesNothingAndHasLeftHoldsNothing) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.expose(1, segment.first, 0);
    alone.rank().let_other_wait(true);
    (*alone).will_free(address_of(segment.first));
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
    alone.enter(RankStatus::left);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, WhatAnEndedTeamGivesUpIsRetiredAtOnce) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.expose(1, segment.first, 0);
    alone.rank().let_other_wait(true);
    alone.rank().end_team();
    (*alone).will_free(address_of(segment.first));
    EXPECT_EQ(alone.rank().version(0), 2U);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
  });
}

TEST(Registrations, WhoHasLeftHasClosedEverything) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.expose(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.enter(RankStatus::leaving);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.enter(RankStatus::left);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, MemoryThatIsGivenAgainWaitsForBothToBeClosed) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    alone.rank().complete(always);
    std::vector<FullSegment> segments;
    for (int i = 0; i < 3; ++i) segments.emplace_back(0, i);
    for (std::size_t i = 0; i < 3; ++i) alone.expose(i + 1, segments[i].first, i);
    EXPECT_EQ(alone.rank().version(0), 2U) << "three are more than may stay open";
    alone.expose(4, segments[0].first, 3);
    (*alone).will_free(address_of(segments[0].first));
    alone.follow(3);
    EXPECT_EQ(alone.hold_on(segments[0].first), Hold::passing) << "the other has it open from the first time";
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segments[0].first), Hold::none);
  });
}

}  // namespace
}  // namespace tutti::transport::team
