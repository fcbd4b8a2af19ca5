// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/joining.hpp"

#include "collectives/nccl_api/base/at_once.hpp"
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/base/settings.hpp"
#include "collectives/nccl_api/clique.hpp"
#include "collectives/nccl_api/gathering.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/meeting/meeting.hpp"
#include "collectives/nccl_api/meeting/meeting_host.hpp"
#include "collectives/nccl_api/nccl_calls.hpp"
#include "collectives/nccl_api/nccl_joining.hpp"
#include "os/thread.hpp"
#include "settings/log.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

CommunicatorOptions options_for(std::vector<Device> devices) {
  const Settings& settings = Settings::get();
  return {.devices = std::move(devices), .patience = settings.patience, .determinism = settings.determinism};
}

/// Makes a handle for each member of the communicator. `token` is that of the meeting of its ranks.
void hand_out(Communicator communicator, std::span<ncclComm_t* const> results, const Token& token = {}) {
  note_use();
  const auto clique = std::make_shared<Clique>(std::move(communicator), token);
  if (clique->first_rank() == 0)
    log_info(fmt::format("tutti carries a communicator of {} ranks for NCCL's interface", clique->ranks()));
  std::vector<std::shared_ptr<ncclComm>> handles;
  for (int local = 0; local < clique->size(); ++local) {
    auto handle = std::make_shared<ncclComm>();
    handle->clique = clique;
    handle->local = local;
    handle->rank = clique->first_rank() + local;
    handle->ranks = clique->ranks();
    handle->device = clique->device(local);
    handles.push_back(std::move(handle));
  }
  for (std::size_t i = 0; i < handles.size(); ++i) *results[i] = give_out(std::move(handles[i]));
}

/// Has tutti make the communicator of some ranks, which meet those of other parties if there are any.
void make_by_tutti(std::span<const Joining> run, Meeting* meeting) {
  std::vector<Device> devices;
  std::vector<ncclComm_t*> results;
  for (const Joining& joining : run) {
    devices.push_back(joining.device);
    results.push_back(joining.result);
  }
  const CommunicatorOptions options = options_for(std::move(devices));
  hand_out(meeting == nullptr ? Communicator(options) : Communicator(*meeting, options), results,
           run.front().address.token);
}

Party party_of(std::span<const Joining> run, const Facts& facts) {
  Party party{.first = run.front().rank, .count = static_cast<std::int32_t>(run.size()), .facts = facts};
  for (const Joining& joining : run) {
    party.need = std::max(party.need, joining.need);
    if (joining.parent) ++party.members;
  }
  return party;
}

/// Returns false if the ranks are to become part of a communicator that grows, of which others are ranks.
bool has_all_members(std::span<const Joining> run, const Party& party) {
  const Joining& first = run.front();
  return first.purpose == Purpose::make || (first.parent && first.parent->ranks() == party.members);
}

/// Returns the rank's visit to a meeting. A rank of a communicator that grows leaves when that has ended.
Visit visit_of(const Joining& joining, const std::function<void()>& require_wish) {
  Visit visit{.function = joining.function(), .purpose = joining.purpose, .require_wish = require_wish};
  if (joining.parent) visit.require_wish = [parent = joining.parent] { parent->communicator().check(); };
  return visit;
}

/// Makes the communicator of some ranks, all of which the thread with the facts makes together.
/// `require_wish` throws once nobody needs it any more.
void make(std::span<const Joining> run, const Facts& facts, const std::function<void()>& require_wish) {
  const Joining& first = run.front();
  const Party party = party_of(run, facts);
  const bool is_whole = static_cast<std::size_t>(first.ranks) == run.size() && has_all_members(run, party);
  std::optional<Meeting> meeting;
  if (!is_whole)
    meeting.emplace(first.address, first.ranks, party, Settings::get().join_timeout,
                    visit_of(first, require_wish));
  Meeting* const others = meeting ? &*meeting : nullptr;
  const std::optional<std::string> reason =
      reason_for_nccl(meeting ? meeting->parties() : std::span<const Party>(&party, 1));
  if (reason) {
    make_by_nccl(run, others, *reason);
  } else {
    make_by_tutti(run, others);
  }
  if (is_whole) MeetingHost::withdraw(first.address);
}

/// Throws a `Refusal` if ranks that come to one meeting want different communicators.
void require_alike(std::span<const Joining> joinings) {
  const auto differ = std::ranges::adjacent_find(joinings, [](const Joining& a, const Joining& b) {
    return a.address.token == b.address.token && (a.ranks != b.ranks || a.purpose != b.purpose);
  });
  if (differ == joinings.end()) return;
  const Joining& other = *std::next(differ);
  throw Refusal{ncclInvalidArgument,
                fmt::format("{}: rank {} of {} and rank {} of {} have one unique id, expected ranks of one "
                            "communicator",
                            differ->function(), differ->rank, differ->ranks, other.rank, other.ranks)};
}

/// Cuts the ranks of one communicator, in order, into runs whose numbers follow one another.
std::vector<std::span<const Joining>> runs_of(std::span<const Joining> joinings) {
  std::vector<std::span<const Joining>> runs;
  std::size_t first = 0;
  for (std::size_t i = 1; i <= joinings.size(); ++i) {
    const bool goes_on = i < joinings.size() && joinings[i].address.token == joinings[first].address.token &&
                         joinings[i].rank == joinings[i - 1].rank + 1;
    if (goes_on) continue;
    runs.push_back(joinings.subspan(first, i - first));
    first = i;
  }
  return runs;
}

/// Does what `join` does, without giving up what has been made if that fails.
void make_all(std::span<const std::span<const Joining>> runs, const std::function<void()>& require_wish) {
  const Facts facts = own_facts();
  do_at_once(runs.size(), {.name = "tutti-join", .purpose = "to make a communicator"},
             [&](std::size_t i) { make(runs[i], facts, require_wish); });
}

/// Describes a rank to the others of a communicator that is split.
struct Wish {
  int color = 0;
  int key = 0;
};

/// Splits a communicator, every rank of which is a process of its own.
void split_processes(const Splitting& splitting) {
  Communicator& communicator = splitting.comm->clique->communicator();
  const std::optional<int> color = splitting.color < 0 ? std::nullopt : std::optional(splitting.color);
  std::optional<Communicator> part = communicator.split(color, splitting.key);
  if (part) hand_out(std::move(*part), std::span(&splitting.result, 1));
}

/// Returns the ranks of a color, in order of keys, then of ranks.
std::vector<int> ranks_of_color(std::span<const Wish> wishes, int color) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank].color == color) ranks.push_back(static_cast<int>(rank));
  }
  std::ranges::stable_sort(ranks, {}, [&](int rank) { return wishes[static_cast<std::size_t>(rank)].key; });
  return ranks;
}

/// Announces a meeting for each color of which a local rank is the first. Sets `failure`, and leaves the
/// addresses without their mark, if that is impossible.
std::vector<MeetingAddress> announced_parts(std::span<const Splitting> splittings,
                                            std::span<const Wish> wishes, std::exception_ptr& failure) {
  std::vector<MeetingAddress> own(splittings.size());
  try {
    for (std::size_t i = 0; i < splittings.size(); ++i) {
      const bool leads = splittings[i].color >= 0 &&
                         ranks_of_color(wishes, splittings[i].color).front() == splittings[i].comm->rank;
      if (leads) own[i] = MeetingHost::get().announce();
    }
  } catch (...) {
    failure = std::current_exception();
  }
  return own;
}

/// Returns a rank that is the first of its color and cannot hold the meeting of that, if there is one.
std::optional<int> rank_without_meeting(std::span<const Wish> wishes,
                                        std::span<const MeetingAddress> addresses) {
  for (const Wish& wish : wishes) {
    if (wish.color < 0) continue;
    const int first = ranks_of_color(wishes, wish.color).front();
    if (addresses[static_cast<std::size_t>(first)].mark != meeting_mark) return first;
  }
  return std::nullopt;
}

/// Gives the local meetings of parts up, to which nobody comes, and throws why: as all ranks know, `missing`
/// cannot hold one, for the reason `failure` if it is a local rank.
[[noreturn]] void give_up_parts(std::span<const MeetingAddress> own, int missing,
                                const std::exception_ptr& failure) {
  for (const MeetingAddress& address : own) {
    if (address.mark == meeting_mark) MeetingHost::withdraw(address);
  }
  if (failure) std::rethrow_exception(failure);
  throw Refusal{
      ncclRemoteError,
      fmt::format("ncclCommSplit: rank {} cannot hold the meeting of the ranks of its color", missing)};
}

/// Splits a communicator, some ranks of which are of one process: those of a color meet anew. `splittings`
/// are those of all local ranks, in order.
void split_ranks(std::span<const Splitting> splittings) {
  Communicator& communicator = splittings.front().comm->clique->communicator();
  const OwnStreams streams(communicator.devices());
  std::vector<Wish> mine;
  for (const Splitting& splitting : splittings)
    mine.push_back({.color = splitting.color, .key = splitting.key});
  const std::vector<Wish> wishes = gather_values<Wish>(communicator, mine);
  std::exception_ptr failure;
  const std::vector<MeetingAddress> own = announced_parts(splittings, wishes, failure);
  const std::vector<MeetingAddress> addresses = gather_values<MeetingAddress>(communicator, own);
  if (const std::optional<int> missing = rank_without_meeting(wishes, addresses))
    give_up_parts(own, *missing, failure);
  std::vector<Joining> joinings;
  for (const Splitting& splitting : splittings) {
    if (splitting.color < 0) continue;
    const std::vector<int> ranks = ranks_of_color(wishes, splitting.color);
    const auto place = std::ranges::find(ranks, splitting.comm->rank) - ranks.begin();
    joinings.push_back({.result = splitting.result,
                        .address = addresses[static_cast<std::size_t>(ranks.front())],
                        .ranks = static_cast<int>(ranks.size()),
                        .rank = static_cast<int>(place),
                        .device = splitting.comm->device,
                        .configuration = {},
                        .is_split = true});
  }
  join(std::move(joinings), [&communicator] {
    if (!communicator.is_running()) communicator.check();
  });
}

/// Splits a communicator of which the parts of all local ranks are there, in order.
void split_all(std::vector<Splitting> all) {
  const Communicator& communicator = all.front().comm->clique->communicator();
  if (communicator.rank_count() == communicator.member_count()) return split_processes(all.front());
  split_ranks(all);
}

/// Frees a handle that the program does not get.
void discard(ncclComm_t comm) {
  if (comm->nccl != nullptr) static_cast<void>(call_nccl<&ncclCommAbort>("ncclCommAbort", comm->nccl));
  static_cast<void>(take_back(comm));
}

}  // namespace

void destroy(const std::vector<ncclComm_t>& handles) {
  std::vector<std::shared_ptr<ncclComm>> owners;
  for (const ncclComm_t comm : handles) owners.push_back(take_back(comm));
  std::erase_if(owners, [](const auto& owner) { return owner->nccl == nullptr; });
  if (owners.empty()) return;
  NcclGroup group;
  for (const auto& owner : owners)
    group.take("ncclCommDestroy", nullptr, call_nccl<&ncclCommDestroy>("ncclCommDestroy", owner->nccl));
  group.end();
}

void join(std::vector<Joining> joinings, const std::function<void()>& require_wish) {
  if (joinings.empty()) return;
  std::ranges::sort(joinings, [](const Joining& a, const Joining& b) {
    return a.address.token != b.address.token ? a.address.token < b.address.token : a.rank < b.rank;
  });
  try {
    require_alike(joinings);
    make_all(runs_of(joinings), require_wish);
  } catch (...) {
    for (const Joining& joining : joinings) {
      if (joining.is_awaited()) call_off(joining.address);
      if (*joining.result != nullptr) discard(*joining.result);
      joining.give_up();
    }
    throw;
  }
}

void join_alone(ncclComm_t* results, const std::vector<Device>& devices) {
  if (Settings::get().fallback == Fallback::always) return make_by_nccl(results, devices);
  std::vector<ncclComm_t*> places;
  for (std::size_t i = 0; i < devices.size(); ++i) places.push_back(results + i);
  hand_out(Communicator(options_for(devices)), places);
}

void split(std::vector<Splitting> splittings) {
  if (splittings.empty()) return;
  std::vector<ncclComm_t*> results;
  for (const Splitting& splitting : splittings) {
    *splitting.result = nullptr;
    results.push_back(splitting.result);
  }
  try {
    for_each_clique(
        std::move(splittings), {.name = "tutti-split", .purpose = "to split a communicator"},
        [](Clique& clique, std::vector<Splitting> own) { clique.split(std::move(own), split_all); });
  } catch (...) {
    for (ncclComm_t* const result : results) {
      if (*result != nullptr) discard(std::exchange(*result, nullptr));
    }
    throw;
  }
}

void shrink(ncclComm_t comm, std::vector<int> excluded, ncclComm_t* result) {
  Communicator& communicator = comm->clique->communicator();
  if (communicator.rank_count() != communicator.member_count())
    throw Refusal{ncclInvalidUsage,
                  fmt::format("ncclCommShrink: {} ranks have been made in {} groups, expected each by itself",
                              communicator.member_count(), communicator.rank_count())};
  hand_out(communicator.shrink({.leaving = std::move(excluded)}), std::span(&result, 1));
}

bool is_of_tutti(const ncclUniqueId& id) noexcept {
  MeetingAddress address;
  std::memcpy(&address, id.internal, sizeof(address));
  return address.mark == meeting_mark;
}

MeetingAddress meeting_of(const char* function, const char* argument, const ncclUniqueId& id) {
  if (!is_of_tutti(id))
    throw Refusal{ncclInvalidArgument,
                  fmt::format("{}: {} is no unique id of tutti, expected one that this library has made",
                              function, argument)};
  MeetingAddress address;
  std::memcpy(&address, id.internal, sizeof(address));
  return address;
}

ncclUniqueId new_id(const char* function, const std::function<MeetingAddress()>& announce) {
  if (const char* const fixed = std::getenv("NCCL_COMM_ID"); fixed != nullptr && *fixed != '\0')
    throw Refusal{ncclInvalidUsage,
                  fmt::format("{}: NCCL_COMM_ID is '{}', expected it unset: ranks meet at the process that "
                              "makes the id",
                              function, fixed)};
  const MeetingAddress address = announce();
  ncclUniqueId id{};
  std::memcpy(id.internal, &address, sizeof(address));
  return id;
}

}  // namespace tutti::nccl_api
