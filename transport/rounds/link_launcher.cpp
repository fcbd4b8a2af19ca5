// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/link_launcher.hpp"

#include "stream/streams.hpp"
#include "transport/rounds/launch_on_threads.hpp"

#include <algorithm>
#include <tuple>

namespace tutti::transport::team {
/// Sorted by link, each in order, first those on which the member sends, as that can begin at once. Members
/// without messages have no entry.
void LinkLauncher::divide(std::span<const LinkTransfer> transfers) {
  sorted_.clear();
  members_.clear();
  parts_.clear();
  messages_.clear();
  for (const LinkTransfer& transfer : transfers) sorted_.push_back(&transfer);
  const auto link_of = [](const LinkTransfer* transfer) {
    const LinkHalf& half = transfer->half;
    return std::tuple(half.member, !half.is_sent, half.peer);
  };
  std::ranges::sort(sorted_, {}, [&](const LinkTransfer* transfer) {
    return std::tuple_cat(link_of(transfer), std::tuple(transfer));
  });
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    const LinkHalf& half = sorted_[i]->half;
    const bool is_new_member = i == 0 || sorted_[i - 1]->half.member != half.member;
    if (is_new_member) {
      members_.push_back({.local = half.member - team_.membership().first_local(),
                          .first_part = parts_.size(),
                          .first_message = messages_.size()});
    }
    MemberTransfers& member = members_.back();
    if (is_new_member || link_of(sorted_[i - 1]) != link_of(sorted_[i])) {
      parts_.push_back({.peer = static_cast<std::uint32_t>(half.peer),
                        .is_sent = half.is_sent ? 1U : 0U,
                        .first_message = static_cast<std::uint32_t>(member.message_count)});
      ++member.part_count;
    }
    ++parts_.back().message_count;
    messages_.push_back({.address = sorted_[i]->address,
                         .bytes = sorted_[i]->bytes,
                         .dtype = static_cast<std::uint32_t>(half.dtype),
                         .invited_to = sorted_[i]->invited_to});
    ++member.message_count;
  }
}

void LinkLauncher::launch_member(const MemberTransfers& member, bool is_captured,
                                 std::span<const backend::StreamRef> streams) const {
  const Windows& windows = team_.windows();
  const Membership& membership = team_.membership();
  backend::TeamLinks task{
      .layout = windows.layout(),
      .windows = windows.seen_by(member.local),
      .member = static_cast<std::uint32_t>(membership.first_local() + member.local),
      .counters = windows.counters(member.local),
      .abort = &team_.abort().word(),
      .process = static_cast<std::uint32_t>(membership.rank()),
      .direct_from = direct_from_,
      .parts = std::span(parts_).subspan(member.first_part, member.part_count),
      .messages = std::span(messages_).subspan(member.first_message, member.message_count)};
  const std::uint32_t bound = team_.settings().most_multiprocessors;
  DeviceRoom& room = team_.live_teams().room_on(membership.devices()[member.local]);
  const DeviceRoom::Part part = room.take(&team_.calls(), is_captured, [&] {
    const std::uint32_t lanes = task.lanes_used();
    const std::uint32_t line_lanes = task.line_lanes_used();
    const std::uint32_t line_blocks =
        (line_lanes + backend::fewest_line_warps - 1) / backend::fewest_line_warps;
    // Lanes have half of the blocks at most, if there are both.
    return std::min(lanes + (lanes == 0        ? line_blocks
                             : line_lanes == 0 ? 0
                                               : std::max(lanes, line_blocks)),
                    bound);
  });
  task.most_multiprocessors = std::min(part.blocks, bound);
  const backend::StreamRef stream = streams[member.local];
  runtime_.backend().team_links(stream, task);
  if (part.is_counted) team_.live_teams().note_end(team_.calls(), stream);
}

void LinkLauncher::launch(Launching launching, bool is_captured, std::uint64_t direct_from,
                          std::span<const LinkTransfer> transfers,
                          std::span<const backend::StreamRef> streams) {
  direct_from_ = direct_from;
  divide(transfers);
  {
    Streams::LaunchLocks gate;
    if (members_.size() > 1) gate = runtime_.part<Streams>().launch_together(team_.membership().devices());
    if (members_.size() > 1 && launching != Launching::from_one_thread && !is_captured) {
      launch_on_threads(team_.abort(), members_.size(),
                        [&](std::size_t i) { launch_member(members_[i], is_captured, streams); });
    } else {
      for (const MemberTransfers& member : members_) launch_member(member, is_captured, streams);
    }
  }
  team_.news().announce();
}

}  // namespace tutti::transport::team
