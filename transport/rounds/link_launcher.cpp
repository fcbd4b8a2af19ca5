// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/link_launcher.hpp"

#include "backend/thread.hpp"
#include "transport/tuning.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <tuple>

namespace tutti::transport::team {
namespace {

/// What one local member does.
struct MemberTransfers {
  std::size_t local = 0;
  std::vector<backend::LinkPart> parts;
  std::vector<backend::LinkMessage> messages;
};

/// By link, each in order, first those on which the member sends: that can begin at once. Nothing for members
/// that do nothing.
std::vector<MemberTransfers> transfers_by_member(const Membership& membership,
                                                 std::span<const LinkTransfer> transfers) {
  std::vector<const LinkTransfer*> sorted;
  for (const LinkTransfer& transfer : transfers) sorted.push_back(&transfer);
  const auto link_of = [](const LinkTransfer* transfer) {
    const LinkHalf& half = transfer->half;
    return std::tuple(half.member, !half.is_sent, half.peer);
  };
  std::ranges::stable_sort(sorted, {}, link_of);
  std::vector<MemberTransfers> all;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const LinkHalf& half = sorted[i]->half;
    const bool is_new_member = i == 0 || sorted[i - 1]->half.member != half.member;
    if (is_new_member) all.emplace_back().local = half.member - membership.first_local();
    MemberTransfers& member = all.back();
    if (is_new_member || link_of(sorted[i - 1]) != link_of(sorted[i])) {
      member.parts.push_back({.peer = static_cast<std::uint32_t>(half.peer),
                              .is_sent = half.is_sent ? 1U : 0U,
                              .first_message = static_cast<std::uint32_t>(member.messages.size())});
    }
    ++member.parts.back().message_count;
    member.messages.push_back({.address = sorted[i]->address,
                               .bytes = sorted[i]->bytes,
                               .dtype = static_cast<std::uint32_t>(half.dtype),
                               .invited_to = sorted[i]->invited_to});
  }
  return all;
}

void launch_member(Runtime& runtime, Team& team, const MemberTransfers& member,
                   std::span<const backend::StreamRef> streams) {
  const Windows& windows = team.windows();
  const Membership& membership = team.membership();
  runtime.backend().team_links(
      streams[member.local],
      {.layout = windows.layout(),
       .windows = windows.seen_by(member.local),
       .member = static_cast<std::uint32_t>(membership.first_local() + member.local),
       .counters = windows.counters(member.local),
       .abort = &team.abort().word(),
       .process = static_cast<std::uint32_t>(membership.rank()),
       .teams_on_device = team.live_teams().count_on(membership.devices()[member.local]),
       .direct_from = direct_messages_from(runtime, team),
       .parts = member.parts,
       .messages = member.messages});
}

/// Where launches return only when kernels have ended: each in a thread of its own. Throws the first failure,
/// which ends the team: other members' kernels may wait for what has not been launched.
void launch_each_apart(Runtime& runtime, Team& team, std::span<const MemberTransfers> members,
                       std::span<const backend::StreamRef> streams) {
  std::mutex mutex;
  std::exception_ptr failure;
  const auto fail = [&] {
    team.abort().fail("cannot launch its members' kernels", backend::Escaped::current());
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
  };
  const auto launch = [&](const MemberTransfers& member) {
    try {
      launch_member(runtime, team, member, streams);
    } catch (...) {
      fail();
    }
  };
  std::vector<backend::Thread> threads;
  try {
    threads.reserve(members.size());
    for (const MemberTransfers& member : members.subspan(1)) {
      threads.emplace_back(
          backend::Thread::Role{.name = "tutti-launch", .purpose = "that launches a member's kernels"},
          [&launch, &member] { launch(member); }, [](const backend::Escaped&) {});
    }
  } catch (const std::exception&) {
    fail();
  }
  launch(members.front());
  for (backend::Thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
}

void mark_streams(Team& team, std::uint64_t number, std::span<const backend::StreamRef> streams) {
  for (std::size_t local = 0; local < streams.size(); ++local)
    team.progress().mark_batch(local, number, streams[local]);
}

}  // namespace

std::uint64_t direct_messages_from(Runtime& runtime, const Team& team) noexcept {
  if (team.registrations() == nullptr) return std::numeric_limits<std::uint64_t>::max();
  return std::max(link_tuning_of(runtime.backend().kind()).direct_from,
                  team.windows().layout().most_in_lines());
}

void launch_links(Runtime& runtime, Team& team, Launching launching, std::uint64_t number,
                  std::span<const LinkTransfer> transfers, std::span<const backend::StreamRef> streams) {
  const std::vector<MemberTransfers> members = transfers_by_member(team.membership(), transfers);
  const bool is_captured = number == 0;
  {
    std::unique_lock<std::shared_mutex> gate;
    if (members.size() > 1) gate = runtime.launch_together();
    if (members.size() > 1 && launching != Launching::from_one_thread && !is_captured) {
      launch_each_apart(runtime, team, members, streams);
    } else {
      for (const MemberTransfers& member : members) launch_member(runtime, team, member, streams);
    }
  }
  team.news().announce();
  if (!is_captured) mark_streams(team, number, streams);
}

void launch_links_by_nccl(Runtime& runtime, Team& team, TeamNccl& nccl, std::uint64_t number,
                          std::span<const LinkTransfer> transfers,
                          const std::vector<backend::StreamRef>& streams) {
  nccl::CallList list;
  std::vector<std::byte*> addresses;
  for (const LinkTransfer& transfer : transfers) {
    if (transfer.bytes == 0) continue;  // on both sides
    const LinkHalf& half = transfer.half;
    nccl::Call call{.function = half.is_sent ? nccl::Function::send : nccl::Function::receive,
                    .lane = static_cast<LaneId>(half.member - team.membership().first_local()),
                    .rank = static_cast<int>(half.member),
                    .peer = static_cast<int>(half.peer),
                    .count = transfer.bytes};
    (half.is_sent ? call.source : call.target) = Place{.buffer = static_cast<BufferId>(addresses.size())};
    addresses.push_back(transfer.address);
    list.calls.push_back(call);
  }
  list.group_ends.push_back(list.calls.size());
  if (!list.calls.empty()) {
    nccl.enqueue(list, {.backend = runtime.backend(), .addresses = addresses, .lanes = streams});
  }
  if (number != 0) mark_streams(team, number, streams);
}

}  // namespace tutti::transport::team
