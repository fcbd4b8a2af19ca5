// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// Which rounds work becomes, as far as the result alone does not tell: by which protocol they go, and
/// whether what a member writes is ordered after what it puts.
namespace tutti::transport::team {
namespace {

constexpr std::uint64_t bytes = 1024;
constexpr RoundLimits limits{.message_bytes = 1 << 20,
                             .protocol = Protocol::low_latency,
                             .layout = {.members = 4, .slot_bytes = 1 << 20, .inbox_bytes = 8 * bytes}};

/// Members with an input and an output each: buffers m and members + m.
class Work {
 public:
  explicit Work(LaneId members) : members_(members) {
    for (int side = 0; side < 2; ++side) {
      for (LaneId member = 0; member < members; ++member) work.homes.push_back(member);
    }
    work.stages.emplace_back();
  }
  [[nodiscard]] Place output(LaneId member, std::uint64_t offset = 0) const {
    return {static_cast<BufferId>(members_ + member), offset};
  }
  void flow(Place source, std::vector<Place> targets, std::uint64_t row_bytes, std::uint64_t rows = 1) {
    work.stages.back().flows.push_back({.source = source,
                                        .targets = range(targets),
                                        .row_bytes = row_bytes,
                                        .rows = rows,
                                        .source_pitch = 2 * row_bytes,
                                        .target_pitch = row_bytes});
  }
  /// Of all members' inputs from `begin` on.
  void sum(std::uint64_t begin, std::uint64_t count, Place output) {
    std::vector<Place> inputs;
    for (LaneId member = 0; member < members_; ++member) inputs.push_back({member, begin});
    work.stages.back().reductions.push_back(
        {.dtype = DType::uint8, .count = count, .inputs = range(inputs), .outputs = range({output})});
  }
  /// Every member adds `count` elements, its own share of all inputs, for all outputs.
  void sums_for_all(std::uint64_t count) {
    for (LaneId member = 0; member < members_; ++member) {
      std::vector<Place> outputs{output(member, member * count)};
      for (LaneId other = 0; other < members_; ++other) {
        if (other != member) outputs.push_back(output(other, member * count));
      }
      sum(member * count, count, outputs.front());
      work.stages.back().reductions.back().outputs = range(outputs);
    }
  }
  /// Of one input.
  void sum_of_one(Place input, std::uint64_t count, Place output) {
    work.stages.back().reductions.push_back(
        {.dtype = DType::uint8, .count = count, .inputs = range({input}), .outputs = range({output})});
  }
  [[nodiscard]] RoundPlan plan(const RoundLimits& by = limits) const {
    return plan_rounds(work, members_, 0, members_, by);
  }

  TeamWork work;

 private:
  PlaceRange range(const std::vector<Place>& places) {
    const PlaceRange range{static_cast<std::uint32_t>(work.places.size()),
                           static_cast<std::uint32_t>(places.size())};
    work.places.insert(work.places.end(), places.begin(), places.end());
    return range;
  }

  LaneId members_;
};

/// The member waits for its own put before it adds.
bool waits_for_itself(const RoundPlan& plan, std::uint32_t member) {
  const RoundPart& part = plan.parts[member].front();
  return std::ranges::find(part.sources, member) != part.sources.end();
}

TEST(RoundPlan, SendsSmallMessagesOnceToAllTheirReaders) {
  Work broadcast(4);
  broadcast.flow({0, 16}, {broadcast.output(1), broadcast.output(2), broadcast.output(3)}, bytes);
  const RoundPlan plan = broadcast.plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  ASSERT_EQ(plan.round_count, 1U);
  const RoundPart& root = plan.parts[0].front();
  ASSERT_EQ(root.puts.segments.size(), 1U);
  EXPECT_EQ(root.puts.segments[0].target_count, 3U);
  EXPECT_EQ(root.puts.pointers[0], (Place{0, 16}));
  for (LaneId reader = 1; reader < 4; ++reader) {
    const Place inbox{plan.inbox_buffer(reader), 0};
    EXPECT_EQ(root.puts.pointers[reader], inbox);
    EXPECT_EQ(plan.parts[reader].front().copies.pointers[0], inbox);
  }
}

TEST(RoundPlan, MessagesOfOneInboxLieOneAfterAnother) {
  Work gather(3);
  gather.flow({1, 0}, {gather.output(0)}, 5);
  gather.flow({2, 0}, {gather.output(0, 5)}, 17);
  gather.flow({2, 17}, {gather.output(0, 22)}, 1);
  const RoundPlan plan = gather.plan();
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  const RoundPart& root = plan.parts[0].front();
  ASSERT_EQ(root.copies.segments.size(), 3U);
  // 5, 17 and 1 bytes: 1, 2 and 1 times 16 of them, and twice that in lines.
  std::vector<std::uint64_t> places;
  for (const backend::FanOutSegment& segment : root.copies.segments)
    places.push_back(root.copies.pointers[segment.source].offset);
  EXPECT_EQ(places, (std::vector<std::uint64_t>{0, 32, 96}));
}

TEST(RoundPlan, MessagesBeginWithAWideLineOfTheirOwn) {
  RoundLimits wide = limits;
  wide.layout.lines = backend::TeamLines::wide;
  Work gather(3);
  gather.flow({1, 0}, {gather.output(0)}, 1);
  gather.flow({2, 0}, {gather.output(0, 1)}, 240);
  gather.flow({1, 1}, {gather.output(0, 241)}, 7);
  const RoundPlan plan = gather.plan(wide);
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  std::vector<std::uint64_t> places;
  for (const backend::FanOutSegment& segment : plan.parts[0].front().copies.segments)
    places.push_back(plan.parts[0].front().copies.pointers[segment.source].offset);
  EXPECT_EQ(places, (std::vector<std::uint64_t>{0, 128, 256}));
}

TEST(RoundPlan, GoesThroughSlotsWhereMessagesAreLarge) {
  Work sent(3);  // 3 KiB to each of two
  sent.flow({0, 0}, {sent.output(1), sent.output(2)}, 3 * bytes);
  EXPECT_EQ(sent.plan().protocol, Protocol::slots);

  Work received(3);
  received.flow({1, 0}, {received.output(0)}, 3 * bytes);
  received.flow({2, 0}, {received.output(0, 3 * bytes)}, 3 * bytes);
  EXPECT_EQ(received.plan().protocol, Protocol::slots);

  Work as_much_as_fits(3);
  as_much_as_fits.flow({0, 0}, {as_much_as_fits.output(1), as_much_as_fits.output(2)}, 2 * bytes);
  EXPECT_EQ(as_much_as_fits.plan().protocol, Protocol::low_latency);

  RoundLimits no_inboxes = limits;
  no_inboxes.layout.inbox_bytes = 0;
  EXPECT_EQ(as_much_as_fits.plan(no_inboxes).protocol, Protocol::slots);

  Work kept(2);
  kept.flow({0, 0}, {kept.output(0)}, 5 * bytes);
  kept.flow({0, 5 * bytes}, {kept.output(1)}, bytes);
  EXPECT_EQ(kept.plan().protocol, Protocol::slots);

  Work alone(1);
  alone.sum(0, 5 * bytes, alone.output(0));
  EXPECT_EQ(alone.plan().protocol, Protocol::slots);

  EXPECT_EQ(Work(2).plan().protocol, Protocol::slots) << "without any rounds";
}

TEST(RoundPlan, GoesThroughSlotsWhereRowsAreApart) {
  Work rows(2);
  rows.flow({0, 0}, {rows.output(1)}, 8, 3);
  EXPECT_EQ(rows.plan().protocol, Protocol::slots);

  Work own_rows(2);
  own_rows.flow({0, 0}, {own_rows.output(0)}, 8, 3);
  own_rows.flow({1, 0}, {own_rows.output(0, 24)}, 8);
  EXPECT_EQ(own_rows.plan().protocol, Protocol::slots);
}

TEST(RoundPlan, WhoAddsWritesAllOutputsWhereTheyLie) {
  Work shared(3);
  shared.sums_for_all(bytes);
  RoundLimits direct = limits;
  direct.protocol = Protocol::direct;
  const RoundPlan plan = shared.plan(direct);
  ASSERT_EQ(plan.protocol, Protocol::direct);
  ASSERT_EQ(plan.round_count, 1U);
  const std::uint64_t most = direct.layout.most_given();
  for (std::uint32_t member = 0; member < 3; ++member) {
    const RoundPart& part = plan.parts[member].front();
    ASSERT_EQ(part.given.size(), 2U) << "its input and its output";
    EXPECT_EQ(part.readers.size(), 2U);
    EXPECT_EQ(part.sources.size(), 2U);
    EXPECT_EQ(part.input_count, 3U);
    EXPECT_EQ(part.output_count, 3U);
    ASSERT_EQ(part.reductions.segments.size(), 1U);
    const auto outputs =
        std::span(part.reductions.pointers).subspan(part.reductions.segments[0].first_output, 3);
    const std::uint64_t at = member * bytes;
    EXPECT_EQ(outputs[0], (Place{plan.own_source(member + 3), at}));
    const std::uint32_t next = member == 0 ? 1 : 0;
    const auto given = std::ranges::find(plan.parts[next].front().given, BufferId{next + 3});
    const auto number = static_cast<std::uint64_t>(given - plan.parts[next].front().given.begin());
    EXPECT_EQ(outputs[1], (Place{plan.given_buffer(next * most + number), at}));
  }
}

TEST(RoundPlan, FlowsBringSumsToOutputsThatNobodyGives) {
  Work shared(3);
  shared.sums_for_all(bytes);
  RoundLimits direct = limits;
  direct.protocol = Protocol::direct;
  direct.layout.slot_bytes = 4096;
  direct.layout.members = 4096 / sizeof(std::byte*);  // an address each
  direct.message_bytes = bytes;
  const RoundPlan plan = shared.plan(direct);
  ASSERT_EQ(plan.protocol, Protocol::slots);
  std::vector<std::uint64_t> copied(3, 0);
  for (std::uint32_t member = 0; member < 3; ++member) {
    for (const RoundPart& part : plan.parts[member]) {
      EXPECT_EQ(part.output_count, 1U);
      EXPECT_TRUE(part.given.empty());
      for (const backend::FanOutSegment& copy : part.copies.segments) copied[member] += copy.row_bytes;
    }
  }
  EXPECT_EQ(copied, std::vector<std::uint64_t>(3, 2 * bytes));
}

TEST(RoundPlan, SumsMayOverwriteWhatIsPutOnlyPieceByPiece) {
  // Everyone adds all that everyone puts, in the same order.
  Work all_reduce(3);
  for (LaneId member = 0; member < 3; ++member) {
    all_reduce.sum(0, 100, all_reduce.output(member));
    all_reduce.sum(100, 50, all_reduce.output(member, 100));
  }
  const RoundPlan alike = all_reduce.plan();
  EXPECT_EQ(alike.protocol, Protocol::low_latency);
  for (std::uint32_t member = 0; member < 3; ++member) EXPECT_FALSE(waits_for_itself(alike, member));
  RoundLimits slots = limits;
  slots.protocol = Protocol::slots;
  for (std::uint32_t member = 0; member < 3; ++member)
    EXPECT_TRUE(waits_for_itself(all_reduce.plan(slots), member));

  // Member 1 adds in another order than it puts for member 0.
  Work crossed(2);
  crossed.sum(0, 100, crossed.output(0));
  crossed.sum(100, 50, crossed.output(0, 100));
  crossed.sum(100, 50, crossed.output(1, 100));
  crossed.sum(0, 100, crossed.output(1));
  EXPECT_EQ(crossed.plan().protocol, Protocol::slots);

  // Everyone adds its own share and puts the others'.
  Work shares(2);
  for (LaneId member = 0; member < 2; ++member) shares.sum(member * 100, 100, shares.output(member));
  EXPECT_EQ(shares.plan().protocol, Protocol::slots);
  shares.work.outputs_are_apart = true;
  EXPECT_EQ(shares.plan().protocol, Protocol::low_latency);
  for (std::uint32_t member = 0; member < 2; ++member)
    EXPECT_FALSE(waits_for_itself(shares.plan(slots), member)) << "nothing that it puts is overwritten";

  // The same, but each share of the sums lies as in the inputs, and so writes to no other share of them.
  Work in_place(2);
  for (LaneId member = 0; member < 2; ++member)
    in_place.sum(member * 100, 100, in_place.output(member, member * 100));
  EXPECT_EQ(in_place.plan().protocol, Protocol::low_latency);

  // Member 0 puts some of what it adds.
  Work overlapping(2);
  overlapping.sum(0, 100, overlapping.output(0));
  overlapping.sum(50, 100, overlapping.output(1, 50));
  EXPECT_EQ(overlapping.plan().protocol, Protocol::slots);
}

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
