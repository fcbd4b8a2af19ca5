// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/round_work.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Who hands on what others want, in which round, and in which order members write to one another.
namespace tutti::transport::team {
namespace {

using namespace round_work;

/// Everyone's share of a sum goes to everyone else, `shift` bytes away from where it was.
Work shared_sum(LaneId members, std::uint64_t shift = 0) {
  Work work(members);
  for (LaneId member = 0; member < members; ++member) {
    for (const std::uint64_t begin : {std::uint64_t{member} * 200, std::uint64_t{member} * 200 + 100}) {
      work.sum(begin, 100, work.output(member, begin));
      std::vector<Place> others;
      for (LaneId other = 0; other < members; ++other) {
        if (other != member) others.push_back(work.output(other, begin + shift));
      }
      work.flow(work.output(member, begin), others, 100);
    }
  }
  return work;
}

TEST(RoundPlan, HandsSumsOnByARelay) {
  const RoundPlan plan = shared_sum(3).plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  ASSERT_EQ(plan.round_count, 2U);
  for (const std::vector<RoundPart>& parts : plan.parts) {
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_FALSE(parts[0].is_relay);
    EXPECT_TRUE(parts[1].is_relay);
    EXPECT_EQ(parts[1].puts.segments.size(), 2U);
  }
}

/// A broadcast by shares: the root has nothing to do with the second round.
TEST(RoundPlan, HandsOnWhatOneMemberHasGiven) {
  constexpr std::uint64_t share = 240;
  Work broadcast(4);
  for (LaneId member = 1; member < 4; ++member) {
    const std::uint64_t begin = (member - 1) * share;
    broadcast.sum_of_one({0, begin}, share, broadcast.output(member, begin));
    std::vector<Place> rest;
    for (LaneId other = 1; other < 4; ++other) {
      if (other != member) rest.push_back(broadcast.output(other, begin));
    }
    broadcast.flow(broadcast.output(member, begin), rest, share);
  }
  const RoundPlan plan = broadcast.plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  ASSERT_EQ(plan.round_count, 2U);
  ASSERT_EQ(plan.parts[0].size(), 1U);
  EXPECT_EQ(plan.parts[0][0].finished, 2U);
  EXPECT_EQ(plan.parts[0][0].puts.segments.size(), 3U);
  for (LaneId member = 1; member < 4; ++member) {
    ASSERT_EQ(plan.parts[member].size(), 2U);
    EXPECT_EQ(plan.parts[member][0].input_count, 1U);
    EXPECT_TRUE(plan.parts[member][1].is_relay);
    EXPECT_EQ(plan.parts[member][1].copies.segments.size(), 2U);
  }

  Work to_giver = broadcast;  // whose input what comes back might overwrite before it is put
  to_giver.sum_of_one({2, 0}, share, to_giver.output(3, 1000));
  for (const std::vector<RoundPart>& parts : to_giver.plan().parts)
    EXPECT_TRUE(std::ranges::none_of(parts, &RoundPart::is_relay));
}

/// Whose inboxes member `writer` fills in a part, in which order.
std::vector<LaneId> readers_in_order(const RoundPlan& plan, LaneId writer) {
  std::vector<LaneId> readers;
  const RoundPart& part = plan.parts[writer].front();
  const std::size_t first_inbox = 2 * plan.operand_count + plan.member_count;
  for (const backend::FanOutSegment& put : part.puts.segments) {
    for (std::uint32_t i = 0; i < put.target_count; ++i) {
      const Place target = part.puts.pointers[put.first_target + i];
      readers.push_back(static_cast<LaneId>(target.buffer - first_inbox));
    }
  }
  return readers;
}

/// If all wrote to one member first, its link would hold up all of them.
TEST(RoundPlan, EveryMemberWritesToTheOneAfterItFirst) {
  Work gather(4);
  for (LaneId member = 0; member < 4; ++member) {
    std::vector<Place> others;
    for (LaneId other = 0; other < 4; ++other) {
      if (other != member) others.push_back(gather.output(other, member * 100));
    }
    gather.flow({member, 0}, others, 100);
  }
  const RoundPlan messages = gather.plan();
  const RoundPlan shares = shared_sum(4).plan();
  ASSERT_EQ(messages.protocol, Protocol::low_latency);
  ASSERT_EQ(shares.protocol, Protocol::low_latency);
  for (LaneId member = 0; member < 4; ++member) {
    const auto after = [member](int steps) { return static_cast<LaneId>((member + steps) % 4); };
    EXPECT_EQ(readers_in_order(messages, member), (std::vector<LaneId>{after(1), after(2), after(3)}));
    EXPECT_EQ(readers_in_order(shares, member),
              (std::vector<LaneId>{after(1), after(1), after(2), after(2), after(3), after(3)}));
  }
}

/// On a GPU the lane that overwrites an input must be the one that has put it.
TEST(RoundPlan, WhoPutsWhatItAddsKeepsTheOrder) {
  Work work(3);
  work.sum_of_one({1, 0}, 100, work.output(1));
  work.sum_of_one({1, 0}, 100, work.output(0));
  work.sum_of_one({1, 100}, 50, work.output(1, 100));
  work.sum_of_one({1, 100}, 50, work.output(2));
  const RoundPlan plan = work.plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  EXPECT_EQ(readers_in_order(plan, 1), (std::vector<LaneId>{0, 2}));
}

TEST(RoundPlan, LongListsOfSumsAreHandedOnInTheirOrder) {
  constexpr LaneId members = 3;
  constexpr std::uint64_t segments = 40;
  Work work(members);
  for (LaneId member = 0; member < members; ++member) {
    for (std::uint64_t i = 0; i < segments; ++i) {
      const std::uint64_t begin = (member * segments + i) * 16;
      work.sum(begin, 16, work.output(member, begin));
      std::vector<Place> others;
      for (LaneId other = 0; other < members; ++other) {
        if (other != member) others.push_back(work.output(other, begin));
      }
      work.flow(work.output(member, begin), others, 16);
    }
  }
  RoundLimits wide = limits;
  wide.layout.inbox_bytes = 64 * bytes;
  const RoundPlan plan = work.plan(wide);
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  for (const std::vector<RoundPart>& parts : plan.parts) {
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_TRUE(parts[1].is_relay);
  }
}

/// A sum for one member by shares of the others: it takes them in the kernel in which it gives its inputs.
TEST(RoundPlan, HandsOnSharesOfASumForOneMember) {
  constexpr std::uint64_t share = 240;
  constexpr LaneId root = 2;
  Work reduce(4);
  std::uint64_t begin = 0;
  for (const LaneId member : {LaneId{0}, LaneId{1}, LaneId{3}}) {
    reduce.sum(begin, share, reduce.output(member, begin));
    reduce.flow(reduce.output(member, begin), {reduce.output(root, begin)}, share);
    begin += share;
  }
  const RoundPlan plan = reduce.plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  ASSERT_EQ(plan.round_count, 2U);
  for (LaneId member = 0; member < 4; ++member) {
    const std::vector<RoundPart>& parts = plan.parts[member];
    ASSERT_EQ(parts.size(), 2U);
    EXPECT_EQ(parts[0].puts.segments.size(), member == root ? 3U : 2U);
    EXPECT_EQ(parts[0].reductions.segments.size(), member == root ? 0U : 1U);
    EXPECT_TRUE(parts[1].is_relay);
    EXPECT_EQ(parts[1].puts.segments.size(), member == root ? 0U : 1U);
    EXPECT_EQ(parts[1].copies.segments.size(), member == root ? 3U : 0U);
  }
}

TEST(RoundPlan, HandsSumsOnInARoundOfTheirOwnIfTheyAreMoreThanThat) {
  const auto has_relays = [](const Work& work) {
    const RoundPlan plan = work.plan();
    EXPECT_EQ(plan.protocol, Protocol::low_latency);
    return std::ranges::any_of(plan.parts, [](const std::vector<RoundPart>& parts) {
      return std::ranges::any_of(parts, &RoundPart::is_relay);
    });
  };
  // What comes back might overwrite inputs of other sums.
  EXPECT_FALSE(has_relays(shared_sum(3, 8)));

  Work more = shared_sum(3);  // an input besides
  more.flow({0, 0}, {more.output(1, 1000)}, 100);
  EXPECT_FALSE(has_relays(more));

  Work less = shared_sum(3);  // not all sums
  less.work.stages.back().flows.pop_back();
  less.sum(900, 100, less.output(2, 900));
  const RoundPlan plan = less.plan();
  EXPECT_TRUE(plan.parts[0].back().is_relay);
  EXPECT_FALSE(plan.parts[2].back().is_relay);

  Work types = shared_sum(3);  // the last member's sums are of two types, and so of two rounds
  types.work.stages.back().reductions.back().dtype = DType::int8;
  EXPECT_FALSE(types.plan().parts[2].back().is_relay);
}

}  // namespace
}  // namespace tutti::transport::team
