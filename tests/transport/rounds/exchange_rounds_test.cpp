// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/describe.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/plan_rounds.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/round_stages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Rounds of exchanges in place: what comes must not be written before what lies there has been put.
namespace tutti::transport::team {
namespace {

constexpr LaneId exchanging = 4;
const std::vector<std::uint64_t> column_bytes{400, 4000};

/// The rounds of an exchange of two tensors; in place for these members and columns, which lie so.
RoundPlan exchange_by(Protocol protocol, const std::vector<std::uint64_t>& in_place) {
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
                      .layout = {.members = exchanging, .slot_bytes = 1U << 20U, .inbox_bytes = 1U << 16U}});
}

std::uint64_t output_of(LaneId member, std::size_t column) {
  return (exchanging + member) * column_bytes.size() + column;
}
/// What lies in the same place of an input as this of an output.
Place input_beside(Place output) {
  return {static_cast<BufferId>(output.buffer - exchanging * column_bytes.size()), output.offset};
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

}  // namespace
}  // namespace tutti::transport::team
