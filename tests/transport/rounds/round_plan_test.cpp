// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_plan.hpp"

#include "transport/rounds/round_work.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// Which rounds work becomes, as far as the result alone does not tell: by which protocol they go, and
/// whether what a member writes is ordered after what it puts.
namespace tutti::transport::team {
namespace {

using namespace round_work;

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
  const std::uint64_t most = direct.layout.most_exposed();
  for (std::uint32_t member = 0; member < 3; ++member) {
    const RoundPart& part = plan.parts[member].front();
    ASSERT_EQ(part.exposed.size(), 2U) << "its input and its output";
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
    const auto exposed = std::ranges::find(plan.parts[next].front().exposed, BufferId{next + 3});
    const auto number = static_cast<std::uint64_t>(exposed - plan.parts[next].front().exposed.begin());
    EXPECT_EQ(outputs[1], (Place{plan.exposed_buffer(next * most + number), at}));
  }
}

TEST(RoundPlan, WhoHasASourceWritesItToOutputsThatOthersGive) {
  Work gather(3);
  for (LaneId member = 0; member < 3; ++member)
    gather.flow({member, 0},
                {gather.output(0, member * bytes), gather.output(1, member * bytes),
                 gather.output(2, member * bytes)},
                bytes);
  RoundLimits direct = limits;
  direct.protocol = Protocol::direct;
  const RoundPlan read = gather.plan(direct);
  EXPECT_FALSE(read.writes_exposed);
  direct.writes_flows = true;
  const RoundPlan plan = gather.plan(direct);
  ASSERT_EQ(plan.protocol, Protocol::direct);
  ASSERT_EQ(plan.round_count, 1U);
  EXPECT_TRUE(plan.writes_exposed);
  const std::uint64_t most = direct.layout.most_exposed();
  for (LaneId member = 0; member < 3; ++member) {
    EXPECT_EQ(read.parts[member].front().exposed, std::vector<BufferId>{member}) << "its input";
    const RoundPart& part = plan.parts[member].front();
    EXPECT_EQ(part.exposed, std::vector<BufferId>{member + 3U}) << "its output";
    EXPECT_EQ(part.readers.size(), 2U);
    EXPECT_EQ(part.sources.size(), 2U);
    ASSERT_EQ(part.copies.segments.size(), 3U);
    // To the member after it first, and to itself last.
    for (std::uint32_t i = 0; i < 3; ++i) {
      const backend::FanOutSegment& copy = part.copies.segments[i];
      const auto other = static_cast<LaneId>((member + 1 + i) % 3);
      EXPECT_EQ(part.copies.pointers[copy.source], (Place{plan.own_source(member), 0}));
      const BufferId target =
          other == member ? plan.own_source(member + 3) : plan.exposed_buffer(other * most);
      EXPECT_EQ(part.copies.pointers[copy.first_target], (Place{target, member * bytes}));
    }
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
      EXPECT_TRUE(part.exposed.empty());
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

}  // namespace
}  // namespace tutti::transport::team
