// SPDX-License-Identifier: Apache-2.0
#include "base/rounding.hpp"
#include "collectives/call/describe.hpp"
#include "transport/nccl/calls.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/rounds.hpp"
#include "transport/team/registrations/registrations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <tuple>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Every rank plans for itself, and knows of its own members alone which results are their inputs: the plans
/// fit together all the same.
namespace tutti::transport {
namespace {

/// A call as one rank with one member describes it. Buffers: inputs by member and column, then outputs.
Problem seen_by(std::size_t rank, std::size_t members, CollectiveForm form, std::uint64_t elements,
                bool is_in_place, bool has_unequal_parts) {
  const Collective collective = form.collective;
  const CollectiveTraits& traits = traits_of(collective);
  const std::size_t root = members - 1;
  collectives::Request request(collective, {}, form.takes_lists ? 3 : 1);
  if (traits.has_own_sizes) {
    request.cut() = {.rows = 1, .row_bytes = members * elements};
    for (std::size_t member = 0; member < members; ++member)
      request.cut().parts.push_back({member * elements, elements});
  } else {
    const bool has_wholes = traits.reduces || traits.output == CollectiveOutput::part;
    for (std::size_t column = 0; column < request.columns; ++column)
      request.add_column(elements * (has_wholes ? members : 1), DType::float32);
    leave_own_copies_alone(request, members, root,
                           [&](std::size_t member, std::size_t) { return member == rank && is_in_place; });
  }
  if (has_unequal_parts) {
    // The first of each are empty.
    const std::size_t parts = members * (collective == Collective::all_to_all ? members : 1);
    const std::uint64_t width = traits.reduces ? 1 : size_of(DType::float32);
    for (std::size_t part = 0; part < parts; ++part)
      request.parts.push_back(part % members * (elements + part) * width);
    const std::uint64_t sum = std::accumulate(request.parts.begin(), request.parts.end(), std::uint64_t{0});
    (traits.reduces ? request.reduced().columns[0].elements : request.copied().bytes[0]) = sum;
  }
  Problem problem;
  problem.collective = collective;
  problem.is_of_team = true;
  problem.root = static_cast<LaneId>(root);
  problem.lane_devices.assign(members, remote_device);
  problem.lane_devices[rank] = 0;
  for (int side = 0; side < 2; ++side) {
    for (std::size_t member = 0; member < members; ++member)
      problem.homes.insert(problem.homes.end(), request.columns, static_cast<LaneId>(member));
  }
  problem.ready = problem.homes;
  describe(request, problem);
  return problem;
}

bool may_have_unequal_parts(Collective collective) {
  return moves_parts(collective) && !traits_of(collective).has_root;
}

/// Calls `visit(form, members, elements, has_unequal_parts)`.
template <class Visit>
void for_each_team_call(const Visit& visit) {
  for (std::size_t value = 0; value < collective_count; ++value) {
    const auto collective = static_cast<Collective>(value);
    if (!moves_tensors(collective)) continue;
    for (const std::size_t members : {2U, 3U, 4U}) {
      for (const std::uint64_t elements : {std::uint64_t{5}, std::uint64_t{300'000}}) {
        SCOPED_TRACE(fmt::format("{} of {} elements among {}", name_of(collective), elements, members));
        visit(CollectiveForm(collective), members, elements, false);
        if (traits_of(collective).may_take_lists()) visit(coalesced(collective), members, elements, false);
        if (may_have_unequal_parts(collective)) visit(CollectiveForm(collective), members, elements, true);
      }
    }
  }
}

TEST(RankAgreement, AllHaveTheShapeInCommonThatTheyChooseBy) {
  for_each_team_call(
      [](CollectiveForm form, std::size_t members, std::uint64_t elements, bool has_unequal_parts) {
        const CallShape shape = seen_by(0, members, form, elements, true, has_unequal_parts).shape;
        EXPECT_EQ(shape.counted.has_value(), has_unequal_parts);
        for (std::size_t rank = 1; rank < members; ++rank) {
          EXPECT_EQ(seen_by(rank, members, form, elements, rank % 2 == 0, has_unequal_parts).shape, shape)
              << "rank " << rank;
        }
      });
}

TEST(RankAgreement, NcclsCallsAreMadeByAllOrNoneInTheSameGroups) {
  for_each_team_call(
      [](CollectiveForm form, std::size_t members, std::uint64_t elements, bool has_unequal_parts) {
        std::set<std::size_t> groups;
        std::size_t sent = 0;
        std::size_t received = 0;
        std::vector<std::vector<int>> roots(members);
        for (std::size_t rank = 0; rank < members; ++rank) {
          const auto calls =
              nccl::calls_for(seen_by(rank, members, form, elements, rank % 2 == 0, has_unequal_parts));
          const auto* const list = std::get_if<nccl::CallList>(&calls);
          ASSERT_NE(list, nullptr) << "rank " << rank << ": " << std::get<nccl::Refusal>(calls).reason;
          groups.insert(list->group_ends.size());
          for (const nccl::Call& call : list->calls) {
            EXPECT_EQ(call.rank, static_cast<int>(rank));
            sent += call.function == nccl::Function::send ? 1 : 0;
            received += call.function == nccl::Function::receive ? 1 : 0;
            const bool has_root =
                call.function == nccl::Function::broadcast || call.function == nccl::Function::reduce;
            if (has_root && has_unequal_parts) roots[rank].push_back(call.peer);
            if (has_root && !has_unequal_parts) {
              EXPECT_EQ(call.peer, static_cast<int>(members - 1));
            }
          }
        }
        EXPECT_EQ(groups.size(), 1U);
        EXPECT_EQ(sent, received);
        for (const std::vector<int>& of_rank : roots) EXPECT_EQ(of_rank, roots.front());
      });
}

team::TeamCapabilities capabilities_of(std::size_t rank, std::size_t members, BackendKind backend) {
  team::TeamCapabilities capabilities{
      .backend = backend,
      .layout = {.members = static_cast<std::uint32_t>(members), .slot_bytes = 1 << 20},
      .most_exposed = team::Registrations::most_exposed,
      .first_local = rank,
      .local_count = 1,
      .windows = TransportKind::p2p};
  const std::uint64_t most = low_latency_to(Collective::all_reduce, capabilities.layout.lines, backend);
  capabilities.layout.inbox_bytes =
      round_up(capabilities.layout.in_lines(most) + 64 * kib, backend::TeamWindowLayout::alignment);
  return capabilities;
}

TEST(RankAgreement, EveryRoundHasTheReadersThatItsSourcesKnowOf) {
  for (const BackendKind backend : {BackendKind::host, BackendKind::cuda}) {
    for_each_team_call(
        [&](CollectiveForm form, std::size_t members, std::uint64_t elements, bool has_unequal_parts) {
          using Link = std::tuple<std::uint32_t, std::size_t, std::size_t>;  // round, source, reader
          std::set<Link> told;
          std::set<Link> awaited;
          std::set<std::uint32_t> counts;
          std::set<team::Protocol> protocols;
          for (std::size_t rank = 0; rank < members; ++rank) {
            const Plan plan =
                team::lower_rounds(seen_by(rank, members, form, elements, rank % 2 == 0, has_unequal_parts),
                                   capabilities_of(rank, members, backend));
            const team::RoundPlan& rounds = *rounds_of(plan);
            counts.insert(rounds.round_count);
            protocols.insert(rounds.protocol);
            ASSERT_EQ(rounds.parts.size(), 1U);
            for (const team::RoundPart& part : rounds.parts.front()) {
              for (const std::uint32_t reader : part.readers) told.insert({part.round, rank, reader});
              for (const std::uint32_t source : part.sources) awaited.insert({part.round, source, rank});
            }
          }
          EXPECT_EQ(counts.size(), 1U);
          EXPECT_EQ(protocols.size(), 1U);
          EXPECT_EQ(told, awaited);
          EXPECT_FALSE(told.empty());
        });
  }
}

}  // namespace
}  // namespace tutti::transport
