// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/growing.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/gathering.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/meeting/meeting.hpp"
#include "collectives/nccl_api/member_parts.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Makes communicators of the ranks of other ones and new ranks.
///
/// All of them meet as the ranks of `ncclCommInitRank` do, at the process of the rank that has made the
/// unique id. The other ranks learn the id through the communicator that they have, which goes on as before.
namespace tutti::nccl_api {
namespace {

/// Says to the other ranks of a communicator how it is to grow.
struct GrowthWish {
  MeetingAddress address{};  ///< without the mark: the rank knows no meeting
  std::int32_t ranks = 0;
};

bool has_address(const GrowthWish& wish) {
  return wish.address.mark == meeting_mark;
}

/// Returns the wishes of the local members. Of the id that the program has got for the communicator, the
/// first member knows if the program does not give one.
std::vector<GrowthWish> wishes_of(std::span<const Growing> all) {
  std::vector<GrowthWish> wishes;
  for (const Growing& one : all)
    wishes.push_back({.address = one.given.value_or(MeetingAddress{}), .ranks = one.ranks});
  const std::optional<MeetingAddress> announced = all.front().comm->clique->take_growth();
  if (!announced) return wishes;
  if (std::ranges::none_of(wishes, has_address)) {
    wishes.front().address = *announced;
  } else if (std::ranges::find(wishes, announced->token,
                               [](const GrowthWish& wish) { return wish.address.token; }) == wishes.end()) {
    call_off(*announced);
  }
  return wishes;
}

/// Returns where the ranks meet the new ones. Throws a `Refusal` if they want different things.
MeetingAddress agreed_meeting(std::span<const GrowthWish> wishes) {
  const auto differs = std::ranges::find_if(
      wishes, [&](const GrowthWish& wish) { return wish.ranks != wishes.front().ranks; });
  if (differs != wishes.end())
    throw Refusal{ncclInvalidArgument,
                  fmt::format("ncclCommGrow: nRanks is {} on rank 0 and {} on rank {}, expected the same",
                              wishes.front().ranks, differs->ranks, differs - wishes.begin())};
  const auto first = std::ranges::find_if(wishes, has_address);
  if (first == wishes.end())
    throw Refusal{ncclInvalidArgument,
                  "ncclCommGrow: no rank of the communicator has a unique id, expected one to have called "
                  "ncclCommGetUniqueId for this call"};
  const auto other = std::ranges::find_if(wishes, [&](const GrowthWish& wish) {
    return has_address(wish) && wish.address.token != first->address.token;
  });
  if (other != wishes.end())
    throw Refusal{ncclInvalidArgument,
                  fmt::format("ncclCommGrow: ranks {} and {} have different unique ids, expected one",
                              first - wishes.begin(), other - wishes.begin())};
  return first->address;
}

/// Tells all local members of a communicator, in order, where they meet the new ranks.
void agree(std::vector<Growing> all) {
  const std::vector<GrowthWish> mine = wishes_of(all);
  try {
    Communicator& communicator = all.front().comm->clique->communicator();
    const OwnStreams streams(communicator.devices());
    const MeetingAddress address = agreed_meeting(gather_values<GrowthWish>(communicator, mine));
    for (const Growing& one : all) *one.found = address;
  } catch (...) {
    for (const GrowthWish& wish : mine) {
      if (has_address(wish)) call_off(wish.address);
    }
    throw;
  }
}

/// Returns the rank of a communicator that grows as one that joins; it does not know yet where.
Joining joining_of(const Growing& growing) {
  return {.result = growing.result,
          .ranks = growing.ranks,
          .rank = growing.comm->rank,
          .device = growing.comm->device,
          .configuration = growing.configuration,
          .need = growing.need,
          .purpose = Purpose::grow,
          .parent = growing.comm->clique};
}

}  // namespace

std::vector<Joining> with_members(std::vector<Joining> joinings, std::vector<Growing> growings) {
  if (growings.empty()) return joinings;
  std::vector<Joining> members;
  for (const Growing& growing : growings) members.push_back(joining_of(growing));
  for (std::size_t i = 0; i < growings.size(); ++i) growings[i].found = &members[i].address;
  for_each_clique(std::move(growings), {.name = "tutti-grow", .purpose = "to let ranks into a communicator"},
                  [](Clique& clique, std::vector<Growing> own) { clique.grow(std::move(own), agree); });
  std::ranges::move(members, std::back_inserter(joinings));
  return joinings;
}

}  // namespace tutti::nccl_api
