// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/describe.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/plan_rounds.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/round_stages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

/// Rounds of exchanges in place: what comes must not be written before what lies there has been put, or
/// swapped.
namespace tutti::transport::team {
namespace {

constexpr LaneId exchanging = 4;
using Bytes = std::vector<std::uint64_t>;  ///< of each of two tensors
const Bytes any_bytes{400, 4000};
const Bytes swappable_bytes{4096, 40'960};

/// The rounds of an exchange of two tensors; in place for these members and columns, which lie so.
RoundPlan exchange_by(Protocol protocol, const std::vector<std::uint64_t>& in_place,
                      const Bytes& column_bytes = any_bytes, bool is_written = false) {
  Problem problem;
  problem.is_of_team = true;
  for (LaneId member = 0; member < exchanging; ++member) problem.lane_devices.push_back(member);
  for (int side = 0; side < 2; ++side) {
    for (LaneId member = 0; member < exchanging; ++member)
      problem.homes.insert(problem.homes.end(), column_bytes.size(), member);
  }
  collectives::Request request(Collective::all_to_all, {}, column_bytes.size());
  request.copied() = {.bytes = column_bytes, .left_alone = in_place};
  collectives::describe(request, problem);
  const TeamWork work = share_work(problem, false, round_tuning_of(BackendKind::host));
  return plan_rounds(work, exchanging, 0, exchanging,
                     {.message_bytes = 1000,
                      .protocol = protocol,
                      .writes_flows = is_written,
                      .layout = {.members = exchanging, .slot_bytes = 1U << 20U, .inbox_bytes = 1U << 16U}});
}

constexpr std::size_t columns = 2;
std::uint64_t output_of(LaneId member, std::size_t column) {
  return (exchanging + member) * columns + column;
}
/// What lies in the same place of an input as this of an output.
Place input_beside(Place output) {
  return {static_cast<BufferId>(output.buffer - exchanging * columns), output.offset};
}
bool waits_for_its_own_puts(const RoundPart& part, LaneId member) {
  return std::ranges::find(part.readers, member) != part.readers.end() &&
         std::ranges::find(part.sources, member) != part.sources.end();
}

TEST(ExchangesInPlace, TakeWithLowLatencyAsTheyPut) {
  // Member 1 has one tensor in place, member 2 both.
  const RoundPlan plan =
      exchange_by(Protocol::low_latency, {output_of(1, 0), output_of(2, 0), output_of(2, 1)});
  ASSERT_EQ(plan.protocol, Protocol::low_latency);
  ASSERT_EQ(plan.round_count, 1U);
  for (LaneId member = 0; member < exchanging; ++member) {
    const RoundPart& part = plan.parts[member].front();
    const auto& puts = part.puts;
    const auto& copies = part.copies;
    ASSERT_EQ(puts.segments.size(), 6U);
    ASSERT_EQ(copies.segments.size(), std::vector({8U, 7U, 6U, 8U})[member]);
    for (std::size_t i = 0; i < puts.segments.size(); ++i) {
      EXPECT_EQ(puts.segments[i].row_bytes, copies.segments[i].row_bytes);
      EXPECT_EQ(puts.pointers[puts.segments[i].source],
                input_beside(copies.pointers[copies.segments[i].first_target]));
    }
    EXPECT_FALSE(waits_for_its_own_puts(part, member));
  }
}

TEST(ExchangesInPlace, WaitForTheirOwnPutsWhereTheyGoThroughSlots) {
  for (const bool is_in_place : {false, true}) {
    const RoundPlan plan = exchange_by(
        Protocol::slots, is_in_place ? std::vector{output_of(0, 0)} : std::vector<std::uint64_t>());
    ASSERT_GT(plan.round_count, 1U);
    for (LaneId member = 0; member < exchanging; ++member) {
      for (const RoundPart& part : plan.parts[member]) {
        EXPECT_EQ(waits_for_its_own_puts(part, member), is_in_place);
        // What a round writes is what it has put, and nothing that a later one puts.
        for (const backend::FanOutSegment& put : part.puts.segments) {
          const Place exposed = part.puts.pointers[put.source];
          EXPECT_EQ(std::ranges::count_if(part.copies.segments,
                                          [&](const backend::FanOutSegment& copy) {
                                            return copy.row_bytes == put.row_bytes &&
                                                   input_beside(part.copies.pointers[copy.first_target]) ==
                                                       exposed;
                                          }),
                    1);
        }
      }
    }
  }
}

/// Returns a member's copies between members, by other member and tensor.
std::vector<backend::FanOutSegment> exchanged(const RoundPart& part) {
  std::vector<backend::FanOutSegment> segments;
  std::ranges::copy_if(part.copies.segments, std::back_inserter(segments),
                       [](const auto& segment) { return segment.swap != backend::Swap::never; });
  return segments;
}

TEST(ExchangesInPlace, SwapDirectlyWhatLiesInPlace) {
  // Member 1 has the first tensor in place, member 2 both.
  for (const bool is_written : {false, true}) {
    const std::vector<std::uint64_t> in_place{output_of(1, 0), output_of(2, 0), output_of(2, 1)};
    const RoundPlan plan = exchange_by(Protocol::direct, in_place, swappable_bytes, is_written);
    ASSERT_EQ(plan.protocol, Protocol::direct);
    EXPECT_TRUE(plan.swaps);
    EXPECT_TRUE(plan.writes_exposed);
    for (LaneId member = 0; member < exchanging; ++member) {
      SCOPED_TRACE(testing::Message() << member << (is_written ? ", written" : ", read"));
      const RoundPart& part = plan.parts[member].front();
      EXPECT_EQ(part.readers.size(), exchanging - 1);
      EXPECT_EQ(part.sources.size(), exchanging - 1);
      ASSERT_EQ(part.exposed.size(), columns);
      ASSERT_EQ(exchanged(part).size(), columns * (exchanging - 1));
      for (const backend::FanOutSegment& segment : exchanged(part)) {
        const Place near = part.copies.pointers[is_written ? segment.source : segment.first_target];
        const Place far = part.copies.pointers[is_written ? segment.first_target : segment.source];
        const Place back = part.copies.pointers[segment.first_target + 1];
        const std::size_t column = (near.buffer - plan.own_source(0)) % columns;
        const std::uint64_t block = swappable_bytes[column] / exchanging;
        const auto other = static_cast<LaneId>(near.offset / block);
        // The other's block for this member, in the first buffer that it exposes of the tensor.
        EXPECT_EQ(far.offset / block, member);
        EXPECT_EQ(far.offset % block, near.offset % block);
        EXPECT_EQ(back.offset, near.offset);
        const bool is_in_place = std::ranges::binary_search(in_place, output_of(member, column));
        EXPECT_EQ(segment.swap, is_in_place ? backend::Swap::of_both_in_place : backend::Swap::with_in_place);
        EXPECT_EQ(segment.row_bytes, is_in_place ? block / 2 : block);
        EXPECT_EQ(near.offset % block, is_in_place && member > other ? block / 2 : 0) << "the other half";
        const Place input = is_written ? near : back;
        const Place output = is_written ? back : near;
        EXPECT_EQ(input, input_beside(output));
        EXPECT_EQ(output.buffer, plan.own_source(static_cast<BufferId>(output_of(member, column))));
        EXPECT_EQ(part.exposed[column],
                  output_of(member, column) - (is_in_place || is_written ? 0 : exchanging * columns));
      }
    }
  }
}

TEST(ExchangesInPlace, ArePlannedAlikeByRanksThatKnowOnlyTheirOwn) {
  for (const bool is_written : {false, true}) {
    const RoundPlan of_one = exchange_by(Protocol::direct, {output_of(1, 0)}, swappable_bytes, is_written);
    const RoundPlan of_two =
        exchange_by(Protocol::direct, {output_of(2, 0), output_of(2, 1)}, swappable_bytes, is_written);
    for (LaneId member = 0; member < exchanging; ++member) {
      const RoundPart& one = of_one.parts[member].front();
      const RoundPart& two = of_two.parts[member].front();
      EXPECT_EQ(one.readers, two.readers);
      EXPECT_EQ(one.sources, two.sources);
      EXPECT_EQ(one.exposed.size(), two.exposed.size());
      // The blocks that others expose have the same numbers and places, but for which half it is.
      const auto far_blocks = [&](const RoundPart& part) {
        std::vector<Place> blocks;
        for (const backend::FanOutSegment& segment : exchanged(part)) {
          const Place far = part.copies.pointers[is_written ? segment.first_target : segment.source];
          const bool is_half = segment.swap == backend::Swap::of_both_in_place;
          const std::uint64_t block = is_half ? 2 * segment.row_bytes : segment.row_bytes;
          blocks.push_back({far.buffer, far.offset / block * block});
        }
        return blocks;
      };
      EXPECT_EQ(far_blocks(one), far_blocks(two));
    }
  }
}

TEST(ExchangesInPlace, GoInSlicesBesideManyBytesThatStay) {
  const Bytes large{exchanging * (std::uint64_t{3} << 20U), exchanging * 256};
  const RoundPlan plan = exchange_by(Protocol::direct, {output_of(1, 0)}, large);
  // Member 0 keeps 3 MiB, and so moves what it exchanges slice by slice as well.
  const RoundPart& part = plan.parts[0].front();
  ASSERT_GT(exchanged(part).size(), columns * (exchanging - 1));
  std::uint64_t bytes = 0;
  for (const backend::FanOutSegment& segment : exchanged(part)) {
    const Place source = part.copies.pointers[segment.source];
    const Place target = part.copies.pointers[segment.first_target];
    const Place other_way = part.copies.pointers[segment.first_target + 1];
    const std::uint64_t block = large[(target.buffer - plan.own_source(0)) % columns] / exchanging;
    EXPECT_EQ(source.offset % block, target.offset % block);
    EXPECT_EQ(other_way.offset, target.offset);
    EXPECT_EQ(source.offset / block, 0U) << "member 0's";
    bytes += segment.row_bytes;
  }
  EXPECT_EQ(bytes, (exchanging - 1) * (large[0] + large[1]) / exchanging);
}

TEST(ExchangesInPlace, AreNotSwappedWhereHalvesWouldBeginWithinTransactions) {
  const RoundPlan plan = exchange_by(Protocol::direct, {output_of(1, 0)}, {4096, 4000});
  EXPECT_FALSE(plan.swaps);
  EXPECT_TRUE(plan.in_place.empty());
  for (const std::vector<RoundPart>& parts : plan.parts) EXPECT_TRUE(exchanged(parts.front()).empty());
}

}  // namespace
}  // namespace tutti::transport::team
