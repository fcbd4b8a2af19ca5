// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_choice.hpp"

#include "base/rounding.hpp"
#include "transport/team/registrations/registrations.hpp"

#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// How calls between processes go, by collective, members and size.
namespace tutti::transport::team {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;

/// A team whose members reach one another's memory.
TeamCapabilities capabilities_of(std::size_t members, BackendKind backend, backend::TeamLines lines) {
  TeamCapabilities capabilities{
      .backend = backend,
      .layout = {.members = static_cast<std::uint32_t>(members), .slot_bytes = mib, .lines = lines},
      .most_exposed = Registrations::most_exposed};
  capabilities.layout.inbox_bytes = round_up(
      capabilities.layout.in_lines(low_latency_to(Collective::all_reduce, lines, backend)) + 64 * kib,
      backend::TeamWindowLayout::alignment);
  return capabilities;
}
TeamCapabilities gpus(std::size_t members) {
  return capabilities_of(members, BackendKind::cuda, backend::TeamLines::wide);
}

CallShape one_tensor(Collective collective, std::size_t members, std::uint64_t payload) {
  return {.collective = collective, .members = members, .payload = payload, .largest_tensor = payload};
}

enum class Way : std::uint8_t { low_latency, relayed, direct, slots, nccl };

/// With NCCL at hand.
Way way_of(const CallShape& shape, const TeamCapabilities& capabilities) {
  const RoundChoice rounds = choose_rounds(shape, capabilities);
  if (!rounds_match_nccl(shape, capabilities, rounds)) return Way::nccl;
  if (rounds.is_relayed) return Way::relayed;
  switch (rounds.protocol) {
    case Protocol::low_latency:
      return Way::low_latency;
    case Protocol::direct:
      return Way::direct;
    case Protocol::slots:
      break;
  }
  return Way::slots;
}

struct Row {
  Collective collective;
  std::size_t members;
  std::uint64_t payload;
  Way expected;
};

TEST(RoundChoice, GoesByCollectiveMembersAndSize) {
  using enum Collective;
  const std::vector<Row> table{
      {broadcast, 2, 64 * kib, Way::low_latency},
      {broadcast, 2, 1 * mib, Way::low_latency},
      {broadcast, 2, 2 * mib, Way::low_latency},
      {broadcast, 2, 4 * mib, Way::direct},
      {broadcast, 2, 256 * mib, Way::direct},
      {broadcast, 4, 64 * kib, Way::low_latency},
      {broadcast, 4, 256 * kib, Way::low_latency},
      {broadcast, 4, 512 * kib, Way::relayed},
      {broadcast, 4, 2 * mib, Way::relayed},
      {broadcast, 4, 4 * mib, Way::nccl},
      {broadcast, 4, 256 * mib, Way::nccl},
      {broadcast, 8, 64 * kib, Way::low_latency},
      {broadcast, 8, 1 * mib, Way::relayed},
      {broadcast, 8, 4 * mib, Way::nccl},
      {reduce, 2, 1 * mib, Way::low_latency},
      {reduce, 2, 4 * mib, Way::low_latency},
      {reduce, 2, 16 * mib, Way::direct},
      {reduce, 4, 256 * kib, Way::low_latency},
      {reduce, 4, 512 * kib, Way::low_latency},
      {reduce, 4, 1 * mib, Way::relayed},
      {reduce, 4, 4 * mib, Way::nccl},
      {reduce, 8, 64 * kib, Way::low_latency},
      {reduce, 8, 1 * mib, Way::relayed},
      {all_reduce, 2, 1 * mib, Way::low_latency},
      {all_reduce, 2, 4 * mib, Way::direct},
      {all_reduce, 2, 16 * mib, Way::direct},
      {all_reduce, 4, 64 * kib, Way::low_latency},
      {all_reduce, 4, 1 * mib, Way::relayed},
      {all_reduce, 4, 4 * mib, Way::relayed},
      {all_reduce, 4, 16 * mib, Way::nccl},
      {all_reduce, 8, 1 * mib, Way::relayed},
      {all_reduce, 8, 16 * mib, Way::nccl},
      {all_gather, 4, 1 * mib, Way::low_latency},
      {all_gather, 4, 256 * mib, Way::direct},
      {reduce_scatter, 4, 1 * mib, Way::low_latency},
      {reduce_scatter, 4, 256 * mib, Way::direct},
      {reduce_scatter, 8, 16 * mib, Way::direct},
      {reduce_scatter, 8, 64 * mib, Way::nccl},
      {all_to_all, 2, 256 * kib, Way::low_latency},
      {all_to_all, 4, 1 * mib, Way::low_latency},
      {all_to_all, 4, 256 * mib, Way::direct},
      {all_to_all, 8, 64 * mib, Way::direct},
      {scatter, 4, 1 * mib, Way::low_latency},
      {scatter, 4, 8 * mib, Way::nccl},
      {scatter, 4, 16 * mib, Way::direct},
      {scatter, 8, 4 * mib, Way::direct},
      {scatter, 2, 1 * mib, Way::low_latency},
      {scatter, 2, 4 * mib, Way::direct},
      {gather, 2, 1 * mib, Way::low_latency},
      {gather, 2, 4 * mib, Way::low_latency},
      {gather, 2, 16 * mib, Way::direct},
      {gather, 4, 4 * mib, Way::low_latency},
      {gather, 4, 16 * mib, Way::nccl},
  };
  for (const Row& row : table) {
    EXPECT_EQ(way_of(one_tensor(row.collective, row.members, row.payload), gpus(row.members)), row.expected)
        << name_of(row.collective) << " of " << row.payload << " bytes among " << row.members;
  }
}

TEST(RoundChoice, ListsGoByRoundsForLongerAsNcclTakesThemOneByOne) {
  CallShape list = one_tensor(Collective::reduce, 4, 4 * mib);
  EXPECT_EQ(way_of(list, gpus(4)), Way::nccl);
  list.tensors = 16;
  list.largest_tensor = list.payload / list.tensors;
  EXPECT_EQ(way_of(list, gpus(4)), Way::relayed);
}

TEST(RoundChoice, SumsForARootAreRelayedAsFarAsItPaysAndAnInboxHolds) {
  TeamCapabilities capabilities = gpus(4);
  const auto rounds_of = [&capabilities](std::uint64_t payload) {
    return choose_rounds(one_tensor(Collective::reduce, 4, payload), capabilities);
  };
  const RoundChoice direct{.protocol = Protocol::direct};
  const std::uint64_t limit =
      low_latency_to(Collective::reduce, capabilities.layout.lines, capabilities.backend);
  EXPECT_TRUE(rounds_of(limit - 64 * kib).is_relayed);
  EXPECT_EQ(rounds_of(limit + 64 * kib), direct);
  capabilities.layout.inbox_bytes /= 2;
  EXPECT_TRUE(rounds_of(capabilities.layout.most_in_inbox() - 64 * kib).is_relayed);
  EXPECT_EQ(rounds_of(capabilities.layout.most_in_inbox()), direct);
}

TEST(RoundChoice, MessagesOfManyTensorsMustFitAnInbox) {
  const TeamCapabilities capabilities = gpus(4);
  CallShape list = one_tensor(Collective::all_gather, 4, 1 * mib);
  EXPECT_EQ(choose_rounds(list, capabilities).protocol, Protocol::low_latency);
  list.tensors = capabilities.layout.most_in_inbox() / capabilities.layout.message_alignment();
  EXPECT_EQ(choose_rounds(list, capabilities).protocol, Protocol::slots) << "more than can be given, too";
}

TEST(RoundChoice, OnlyWhatCanBeGivenIsReadWhereItLies) {
  const CallShape large = one_tensor(Collective::all_gather, 4, 64 * mib);
  TeamCapabilities capabilities = gpus(4);
  EXPECT_EQ(choose_rounds(large, capabilities).protocol, Protocol::direct);
  capabilities.most_members_of_a_rank = 4;
  capabilities.most_exposed = 8;
  EXPECT_EQ(choose_rounds(large, capabilities).protocol, Protocol::direct);
  capabilities.most_exposed = 7;  // an input and an output of each member
  EXPECT_EQ(choose_rounds(large, capabilities).protocol, Protocol::slots);
  capabilities = gpus(4);
  CallShape too_large = large;
  too_large.largest_tensor = backend::SourcePlace::most_bytes;
  EXPECT_EQ(choose_rounds(too_large, capabilities).protocol, Protocol::slots);
}

TEST(RoundChoice, ExchangesAreWrittenAboveASizeAndTheRestIsRead) {
  const auto is_written = [](Collective collective, std::uint64_t payload) {
    const RoundChoice choice = choose_rounds(one_tensor(collective, 2, payload), gpus(2));
    EXPECT_EQ(choice.protocol, Protocol::direct);
    return choice.is_written;
  };
  const std::uint64_t from =
      2 * round_tuning_of(BackendKind::cuda).written_from;  // half of it leaves a member
  EXPECT_FALSE(is_written(Collective::all_to_all, from));
  EXPECT_TRUE(is_written(Collective::all_to_all, from + 64));
  for (const Collective collective :
       {Collective::broadcast, Collective::all_gather, Collective::scatter, Collective::gather,
        Collective::reduce_scatter, Collective::all_reduce}) {
    EXPECT_FALSE(is_written(collective, 4 * from));
  }
}

TEST(RoundChoice, SlotsAreLeftToNcclWhereMessagesWouldBeCut) {
  TeamCapabilities capabilities = gpus(4);
  capabilities.most_exposed = 0;
  capabilities.layout.inbox_bytes = 0;
  CallShape shape = one_tensor(Collective::all_gather, 4, 4 * mib);
  EXPECT_EQ(way_of(shape, capabilities), Way::slots);
  shape.payload += 4;
  EXPECT_EQ(way_of(shape, capabilities), Way::nccl);
  capabilities.layout.slot_bytes = 512 * kib;
  shape.payload = 4 * mib;
  EXPECT_EQ(way_of(shape, capabilities), Way::nccl);
}

TEST(RoundChoice, RowsApartAreNoMessages) {
  CallShape shape = one_tensor(Collective::scatter, 4, 64 * kib);
  EXPECT_EQ(choose_rounds(shape, gpus(4)).protocol, Protocol::low_latency);
  shape.has_rows_apart = true;
  EXPECT_EQ(choose_rounds(shape, gpus(4)).protocol, Protocol::slots);
  shape.payload = 64 * mib;
  EXPECT_EQ(choose_rounds(shape, gpus(4)).protocol, Protocol::direct);
}

TEST(RoundChoice, WhatARootKeepsIsNotSent) {
  CallShape shape = one_tensor(Collective::gather, 2, 6 * mib);
  EXPECT_EQ(shape.busiest_member(), 6 * mib);
  EXPECT_EQ(choose_rounds(shape, gpus(2)).protocol, Protocol::direct);
  shape.kept_by_root = 5 * mib;
  EXPECT_EQ(shape.busiest_member(), 1 * mib);
  EXPECT_EQ(choose_rounds(shape, gpus(2)).protocol, Protocol::low_latency);
}

TEST(RoundChoice, UnequalPartsGoByWhatTheBusiestMemberHas) {
  CallShape shape = one_tensor(Collective::all_to_all, 4, 64 * mib);
  shape.counted = {.largest_message = 64 * kib, .busiest_member = 64 * kib, .most_kept = 64 * kib};
  EXPECT_EQ(choose_rounds(shape, gpus(4)).protocol, Protocol::low_latency);
  // What a member has for itself is copied by the same round.
  shape.counted->most_kept = 60 * mib;
  const RoundChoice rounds = choose_rounds(shape, gpus(4));
  EXPECT_EQ(rounds.protocol, Protocol::slots);
  EXPECT_NE(reason_for(shape, gpus(4), rounds).find("a member keeps 62914560 bytes"), std::string::npos)
      << reason_for(shape, gpus(4), rounds);
  shape.counted->largest_message = 8 * mib;
  EXPECT_EQ(way_of(shape, gpus(4)), Way::direct);
}

TEST(RoundChoice, NcclIsNotFasterForUnequalParts) {
  CallShape shape = one_tensor(Collective::reduce_scatter, 8, 64 * mib);
  EXPECT_EQ(way_of(shape, gpus(8)), Way::nccl);
  shape.counted = {.largest_message = 60 * mib, .busiest_member = 60 * mib};
  EXPECT_EQ(way_of(shape, gpus(8)), Way::direct);
}

TEST(RoundChoice, DividesNoElementThatIsCombinedWhole) {
  CallShape shape = one_tensor(Collective::all_reduce, 2, 8 * kib);
  for (const auto& [element, way] :
       {std::pair{1, Way::low_latency}, std::pair{8, Way::low_latency}, std::pair{16, Way::slots}}) {
    shape.inseparable_bytes = static_cast<std::uint64_t>(element);
    EXPECT_EQ(way_of(shape, gpus(2)), way) << element;
  }
  const RoundChoice rounds = choose_rounds(shape, gpus(2));
  EXPECT_NE(reason_for(shape, gpus(2), rounds).find("would split elements of 16 bytes"), std::string::npos)
      << reason_for(shape, gpus(2), rounds);
  EXPECT_EQ(way_of(shape, capabilities_of(2, BackendKind::cuda, backend::TeamLines::narrow)),
            Way::low_latency);
  shape.members = 4;
  EXPECT_FALSE(choose_rounds(shape, gpus(4)).is_relayed);
}

/// For every team, collective and size.
TEST(RoundChoice, KeepsToWhatItsProtocolCanCarry) {
  for (const auto& [backend, lines] : {std::pair{BackendKind::cuda, backend::TeamLines::wide},
                                       std::pair{BackendKind::cuda, backend::TeamLines::narrow},
                                       std::pair{BackendKind::host, backend::TeamLines::narrow}}) {
    for (std::size_t members = 1; members <= 16; ++members) {
      const TeamCapabilities capabilities = capabilities_of(members, backend, lines);
      for (std::size_t i = 0; i < collective_count; ++i) {
        const auto collective = static_cast<Collective>(i);
        if (!moves_tensors(collective)) continue;
        for (std::uint64_t payload = 1; payload <= 1024 * mib; payload *= 2) {
          const CallShape shape = one_tensor(collective, members, payload);
          const RoundChoice rounds = choose_rounds(shape, capabilities);
          const auto what = fmt::format("{} of {} bytes among {}", name_of(collective), payload, members);
          if (members == 1) {
            EXPECT_EQ(rounds, RoundChoice{}) << what;
            continue;
          }
          if (rounds.is_relayed) {
            EXPECT_EQ(rounds.protocol, Protocol::low_latency) << what;
            EXPECT_GE(members, 3U) << what;
            // With a root, whoever makes a share gets as much as the root sends or receives.
            const bool has_root = shape.collective != Collective::all_reduce;
            EXPECT_LE(has_root ? payload : shape.busiest_member() / members,
                      capabilities.layout.most_in_inbox())
                << what;
          } else if (rounds.protocol == Protocol::low_latency) {
            EXPECT_LE(shape.busiest_member(), capabilities.layout.most_in_inbox()) << what;
          } else if (rounds.protocol == Protocol::direct) {
            EXPECT_GT(shape.largest_message(), round_tuning_of(backend).direct_from) << what;
          }
        }
      }
    }
  }
}

TEST(RoundChoice, SaysHowFarLowLatencyGoes) {
  EXPECT_EQ(low_latency_limits(4, gpus(4)).least, 1536 * kib);
  EXPECT_EQ(low_latency_limits(4, gpus(4)).most, 4 * mib);
  EXPECT_EQ(low_latency_limits(2, gpus(2)).least, 1280 * kib) << "direct rounds overtake them";
  EXPECT_EQ(low_latency_limits(2, gpus(2)).most, 4 * mib);
}

TEST(RoundChoice, DirectRoundsBetweenTwoBeginWhereTheyAreFaster) {
  const auto protocol_of = [](Collective collective, std::uint64_t payload) {
    return choose_rounds(one_tensor(collective, 2, payload), gpus(2)).protocol;
  };
  for (const auto& [collective, low_latency, direct] :
       {std::tuple{Collective::all_reduce, 1536 * kib, 2 * mib},
        std::tuple{Collective::reduce_scatter, 2 * mib, 3 * mib},
        std::tuple{Collective::scatter, 1536 * kib, 2 * mib},
        std::tuple{Collective::broadcast, 2 * mib, 4 * mib}}) {
    EXPECT_EQ(protocol_of(collective, low_latency), Protocol::low_latency) << name_of(collective);
    EXPECT_EQ(protocol_of(collective, direct), Protocol::direct) << name_of(collective);
  }
}

TEST(RoundChoice, SaysHowFarSmallInboxesLetLowLatencyGo) {
  TeamCapabilities capabilities = gpus(4);
  capabilities.layout.inbox_bytes = 64 * backend::TeamWindowLayout::alignment;
  const auto [least, most] = low_latency_limits(4, capabilities);
  EXPECT_EQ(least, most);
  EXPECT_LT(most, capabilities.layout.most_in_inbox());
  // A member receives three parts of four.
  const std::uint64_t largest = most / 3 * 4;
  EXPECT_EQ(choose_rounds(one_tensor(Collective::all_gather, 4, largest), capabilities).protocol,
            Protocol::low_latency);
  EXPECT_NE(choose_rounds(one_tensor(Collective::all_gather, 4, largest + 64), capabilities).protocol,
            Protocol::low_latency);
}

}  // namespace
}  // namespace tutti::transport::team
