// SPDX-License-Identifier: Apache-2.0
#include "ranks/registering_rank.hpp"
#include "support/ranks.hpp"
#include "transport/team/registrations.hpp"
#include "tutti/error.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

/// One rank registers, and the tests decide what the other does, and when.
namespace tutti::transport::ranks {
namespace {

using test::expect_all_right;
using Hold = SegmentObserver::Hold;

/// Rank 0 of two, in one process: the test itself does what the other does, or does not.
class AloneRank {
 public:
  AloneRank()
      : rank_(shared(), 0, [this](std::uint64_t, const auto& holds) {
          while (!holds()) {
            if (while_waiting.empty()) throw Error(ErrorCode::timeout, "nothing more happens");
            while_waiting.front()();
            while_waiting.pop_front();
          }
        }) {}

  /// The other opens or closes what the entry says.
  void follow(std::size_t entry) {
    RegistrationView& view = shared().views[2 * entry + 1];
    view.address = 0x1000 * (entry + 1);
    view.version = rank_.version(entry);
  }
  void give(std::uint64_t sequence, const Tensor& tensor, std::size_t expected_entry) {
    EXPECT_TRUE((*rank_).add(sequence, 0, address_of(tensor), false));
    EXPECT_EQ(rank_.version(expected_entry) % 2, 1U);
    follow(expected_entry);
    (*rank_).wait(sequence);
    EXPECT_EQ(rank_.seen_by_other(tensor), reinterpret_cast<std::byte*>(0x1000 * (expected_entry + 1)));
  }
  [[nodiscard]] Hold hold_on(const Tensor& tensor) { return (*rank_).hold_on(address_of(tensor)); }
  [[nodiscard]] Shared& shared() { return *shared_; }
  [[nodiscard]] Rank& rank() { return rank_; }
  [[nodiscard]] Registrations& operator*() { return *rank_; }

  std::deque<std::function<void()>> while_waiting;  ///< what happens, one after another

 private:
  std::unique_ptr<Shared> shared_ = std::make_unique<Shared>();
  Rank rank_;
};

TEST(Registrations, HoldMemoryUntilOthersHaveClosedIt) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    const FullSegment unknown(0, 1);
    alone.give(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    (*alone).will_free(address_of(unknown.first));
    EXPECT_EQ(alone.hold_on(unknown.first), Hold::none);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);

    alone.give(2, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.shared().is_over = true;
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
    alone.give(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.shared().closes_nothing = true;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
    alone.shared().closes_nothing = false;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.shared().closes_nothing = true;
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none) << "it has closed it";
  });
}

TEST(Registrations, MemoryThatOthersKeepOpenIsGivenAgainAsOftenAsOneLikes) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.give(1, segment.first, 0);
    alone.shared().closes_nothing = true;
    for (std::size_t round = 0; round < 3 * capacity; ++round) {
      (*alone).will_free(address_of(segment.first));
      EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
      EXPECT_TRUE(alone.rank().give(round + 2, segment.first));
    }
    EXPECT_EQ(alone.rank().used(), 1U);
    EXPECT_EQ(alone.rank().version(0), 1U) << "the other need not do anything";
    EXPECT_EQ(alone.rank().seen_by_other(segment.first), reinterpret_cast<std::byte*>(0x1000));

    (*alone).will_free(address_of(segment.first));
    alone.shared().closes_nothing = false;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing) << "now it is to close it";
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, WhoClosesNothingAndHasLeftHoldsNothing) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.give(1, segment.first, 0);
    alone.shared().closes_nothing = true;
    (*alone).will_free(address_of(segment.first));
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
    alone.shared().boards[1].state = RankBoard::left;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, WhatAnEndedTeamGivesUpIsRetiredAtOnce) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.give(1, segment.first, 0);
    alone.shared().closes_nothing = true;
    alone.shared().is_over = true;
    (*alone).will_free(address_of(segment.first));
    EXPECT_EQ(alone.rank().version(0), 2U);
    EXPECT_EQ(alone.hold_on(segment.first), Hold::lasting);
  });
}

TEST(Registrations, WhoHasLeftHasClosedEverything) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    const FullSegment segment(0, 1);
    alone.give(1, segment.first, 0);
    (*alone).will_free(address_of(segment.first));
    alone.shared().boards[1].state = RankBoard::leaving;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::passing);
    alone.shared().boards[1].state = RankBoard::left;
    EXPECT_EQ(alone.hold_on(segment.first), Hold::none);
  });
}

TEST(Registrations, MemoryThatIsGivenAgainWaitsForBothToBeClosed) {
  expect_all_right(1, [](Exchange&) {
    AloneRank alone;
    alone.rank().completed = always;
    std::vector<FullSegment> segments;
    for (int i = 0; i < 3; ++i) segments.emplace_back(0, i);
    for (std::size_t i = 0; i < 3; ++i) alone.give(i + 1, segments[i].first, i);
    EXPECT_EQ(alone.rank().version(0), 2U) << "three are more than may stay open";
    alone.give(4, segments[0].first, 3);
    (*alone).will_free(address_of(segments[0].first));
    alone.follow(3);
    EXPECT_EQ(alone.hold_on(segments[0].first), Hold::passing) << "the other has it open from the first time";
    alone.follow(0);
    EXPECT_EQ(alone.hold_on(segments[0].first), Hold::none);
  });
}

}  // namespace
}  // namespace tutti::transport::ranks
