// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/link_log.hpp"

#include "os/shared_memory.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "transport/team/progress/link_comparison.hpp"

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

/// What both sides of a link write of its messages, and what becomes of those that differ.
namespace tutti::transport::team {
namespace {

using test::RankComponents;
using test::refuses;
using LinkEnd = SharedState::LinkEnd;

TEST(LinkLog, RemembersTheLastMessagesAsTheyWereGiven) {
  LinkLog log;
  constexpr std::uint64_t count = LinkLog::history + 5;
  const auto signature_of = [](std::uint64_t number) {
    const auto dtype = number % 2 == 0 ? DType::complex128 : DType::int8;
    return LinkSignature{
        .elements = (std::uint64_t{1} << 40U) + number, .dtype = dtype, .is_captured = number % 3 == 0};
  };
  for (std::uint64_t number = 1; number <= count; ++number) log.post(signature_of(number));
  EXPECT_EQ(log.posted(), count);
  for (std::uint64_t number = count - LinkLog::history + 1; number <= count; ++number)
    EXPECT_EQ(log.message(number), signature_of(number)) << number;
}

TEST(LinkLog, HasRoomUntilASideIsHalfAHistoryAheadOfTheOther) {
  LinkLog mine;
  LinkLog other;
  for (std::uint64_t number = 0; number < LinkLog::furthest_ahead; ++number) {
    EXPECT_TRUE(mine.has_room_beside(other)) << number;
    mine.post({});
  }
  EXPECT_FALSE(mine.has_room_beside(other));
  EXPECT_TRUE(other.has_room_beside(mine)) << "who is behind has room";
  other.post({});
  EXPECT_TRUE(mine.has_room_beside(other));
}

TEST(LinkLog, TellsWhatIsMadeAndReceivedApartFromWhatIsPosted) {
  LinkLog log;
  log.set_made(3);
  log.set_received(2);
  log.post({.elements = 7});
  EXPECT_EQ(log.made(), 3U);
  EXPECT_EQ(log.received(), 2U);
  EXPECT_EQ(log.posted(), 1U);
}

/// The link from member 0, of rank 0, to member 1, of rank 1.
class ComparedLink : public testing::Test {
 protected:
  void post(LinkEnd end, const LinkSignature& signature) {
    components_.state.link_log(0, 1, end).post(signature);
  }
  void compare(std::uint64_t number, LinkEnd end = LinkEnd::sender) {
    compare_sides(components_.membership, components_.state, components_.abort,
                  {.from = 0, .to = 1, .number = number}, end);
  }
  [[nodiscard]] testing::AssertionResult has_ended(const std::string& reason) {
    return refuses([&] { components_.abort.require_running(); }, ErrorCode::invalid_argument, {reason});
  }

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(2)))};
  RankComponents components_{memory_.data(), RankComponents::alike(2), 0};
};

TEST_F(ComparedLink, AMessageThatOneSideHasNotPostedIsNotCompared) {
  compare(1);
  post(LinkEnd::sender, {.elements = 10});
  compare(1);
  EXPECT_FALSE(components_.abort.is_set());
}

TEST_F(ComparedLink, SidesThatAreAlikeGoOn) {
  for (const LinkEnd end : {LinkEnd::sender, LinkEnd::receiver})
    post(end, {.elements = 10, .dtype = DType::int32, .is_captured = true});
  compare(1);
  compare(1, LinkEnd::receiver);
  EXPECT_FALSE(components_.abort.is_set());
}

TEST_F(ComparedLink, TheSideThatLooksIsNamedFirst) {
  post(LinkEnd::sender, {.elements = 10});
  post(LinkEnd::receiver, {.elements = 10, .dtype = DType::int32});
  compare(1, LinkEnd::receiver);
  EXPECT_TRUE(
      has_ended("message #1 from member 0 to member 1 does not match: rank 1 receives 10 int32, "
                "rank 0 sends 10 float32"));
  compare(1);
  EXPECT_TRUE(has_ended("rank 1 receives 10 int32, rank 0 sends 10 float32")) << "the first reason stays";
}

TEST_F(ComparedLink, EachMessageIsComparedWithTheOneOfItsNumber) {
  for (const std::uint64_t elements : {1U, 2U}) post(LinkEnd::sender, {.elements = elements});
  post(LinkEnd::receiver, {.elements = 1});
  compare(1);
  compare(2);
  EXPECT_FALSE(components_.abort.is_set());
  post(LinkEnd::receiver, {.elements = 2, .is_captured = true});
  compare(2);
  EXPECT_TRUE(
      has_ended("message #2 from member 0 to member 1 does not match: rank 0 sends 2 float32, "
                "rank 1 receives 2 float32, captured"));
}

}  // namespace
}  // namespace tutti::transport::team
