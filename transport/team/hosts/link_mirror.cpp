// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/link_mirror.hpp"

#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"
#include "transport/team/progress/link_comparison.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace tutti::transport::team {

LinkMirror::LinkMirror(const Membership& membership, const SharedState& state, const Windows& windows,
                       Abort& abort)
    : membership_(membership), state_(state), windows_(windows), abort_(abort) {
  // Logs are mirrored without lanes, too: sides of messages that NCCL carries are compared.
  const std::uint32_t lanes = windows.layout().link_lanes;
  const auto first = static_cast<std::uint32_t>(membership.first_local());
  for (std::uint32_t member = first; member < first + membership.local_count(); ++member) {
    for (std::uint32_t peer = 0; peer < membership.member_count(); ++peer) {
      const std::size_t rank = membership.rank_of_member()[peer];
      if (membership.is_on_this_host(rank)) continue;
      const std::size_t host = membership.host_of(rank);
      const std::vector<std::uint32_t> pieces(lanes);
      sides_.push_back({.from = member, .to = peer, .end = LinkEnd::sender, .host = host, .pieces = pieces});
      sides_.push_back(
          {.from = peer, .to = member, .end = LinkEnd::receiver, .host = host, .pieces = pieces});
    }
  }
}

void LinkMirror::add_news(MessageWriter& news, std::size_t host, const std::function<void()>& may_send) {
  for (Side& side : sides_) {
    if (side.host != host || state_.link_log(side.from, side.to, side.end).made() == 0) continue;
    add_log(news, side);
    if (side.end == LinkEnd::sender) {
      add_pieces(news, side, may_send);
    } else {
      add_taken(news, side);
    }
  }
}

void LinkMirror::add_log(MessageWriter& news, Side& side) const {
  const LinkLog& log = state_.link_log(side.from, side.to, side.end);
  const std::uint64_t posted = log.posted();
  const std::uint64_t made = log.made();
  const std::uint64_t received = log.received();
  if (posted == side.posted && made == side.made && received == side.received) return;
  news.add(MessageRecord::link_log);
  news.add(side.from);
  news.add(side.to);
  news.add(std::uint32_t{side.end == LinkEnd::receiver});
  news.add(made);
  news.add(received);
  news.add(static_cast<std::uint32_t>(posted - side.posted));
  // None has been overwritten: the other side gets no further ahead of what it has heard, and this one no
  // further ahead of that.
  for (std::uint64_t number = side.posted + 1; number <= posted; ++number) {
    const LinkSignature message = log.message(number);
    news.add(message.elements);
    news.add(static_cast<std::uint32_t>(message.dtype));
    news.add(std::uint32_t{message.is_captured});
  }
  side.posted = posted;
  side.made = made;
  side.received = received;
}

void LinkMirror::add_pieces(MessageWriter& news, Side& side, const std::function<void()>& may_send) const {
  const backend::TeamWindowLayout& layout = windows_.layout();
  const std::byte* const window = windows_.on_host(side.to);
  for (std::uint32_t lane = 0; lane < side.pieces.size(); ++lane) {
    const backend::SharedFlag& ready =
        windows_.flag_on_host(side.to, layout.link_ready_offset(side.from, lane));
    const std::uint32_t put = ready.value.load(std::memory_order_acquire);
    for (std::uint32_t& sent = side.pieces[lane]; sent != put; ++sent) {
      backend::LinkLabel label;
      std::memcpy(&label, window + layout.link_label_offset(side.from, lane, sent), sizeof(label));
      news.add(MessageRecord::link_piece);
      news.add(side.from);
      news.add(side.to);
      news.add(lane);
      news.add(sent);
      news.add(label);
      news.add_bytes({window + layout.link_slot_offset(side.from, lane, sent), label.piece_bytes});
      // The member fills the slot again when it hears, maybe through another process, that the piece has been
      // taken. That it comes after this copy is to be seen in this process too: by the flag it waits for.
      windows_.flag_on_host(side.from, layout.link_taken_offset(side.to, lane))
          .value.fetch_add(0, std::memory_order_release);
      may_send();
    }
  }
}

void LinkMirror::add_taken(MessageWriter& news, Side& side) const {
  const backend::TeamWindowLayout& layout = windows_.layout();
  for (std::uint32_t lane = 0; lane < side.pieces.size(); ++lane) {
    const backend::SharedFlag& taken =
        windows_.flag_on_host(side.from, layout.link_taken_offset(side.to, lane));
    const std::uint32_t count = taken.value.load(std::memory_order_acquire);
    if (count == side.pieces[lane]) continue;
    news.add(MessageRecord::link_taken);
    news.add(side.from);
    news.add(side.to);
    news.add(lane);
    news.add(count);
    side.pieces[lane] = count;
  }
}

LinkMirror::Lane LinkMirror::take_lane(MessageReader& message) const {
  const auto members = static_cast<std::uint32_t>(membership_.member_count());
  const auto from = message.take_below<std::uint32_t>(members);
  const auto to = message.take_below<std::uint32_t>(members);
  return {from, to, message.take_below<std::uint32_t>(windows_.layout().link_lanes)};
}

void LinkMirror::deliver_log(MessageReader& message) {
  const std::size_t members = membership_.member_count();
  LinkPlace place{.from = message.take_below<std::uint32_t>(members),
                  .to = message.take_below<std::uint32_t>(members)};
  const bool is_received = message.take_below<std::uint32_t>(2) != 0;
  const LinkEnd end_there = is_received ? LinkEnd::receiver : LinkEnd::sender;
  const LinkEnd end_here = is_received ? LinkEnd::sender : LinkEnd::receiver;
  LinkLog& log = state_.link_log(place.from, place.to, end_there);
  log.set_made(message.take<std::uint64_t>());
  log.set_received(message.take<std::uint64_t>());
  for (auto left = message.take_below<std::uint32_t>(LinkLog::history + 1); left > 0; --left) {
    const auto elements = message.take<std::uint64_t>();
    const auto dtype = static_cast<DType>(message.take<std::uint32_t>());
    const bool is_captured = message.take<std::uint32_t>() != 0;
    log.post({.elements = elements, .dtype = dtype, .is_captured = is_captured});
    place.number = log.posted();
    compare_sides(membership_, state_, abort_, place, end_here);
  }
}

void LinkMirror::deliver_piece(MessageReader& message) {
  const backend::TeamWindowLayout& layout = windows_.layout();
  const auto [from, to, lane] = take_lane(message);
  const auto before = message.take<std::uint32_t>();
  const auto label = message.take<backend::LinkLabel>();
  if (label.piece_bytes > layout.link_slot_bytes) message.fail();
  const auto piece = message.take_bytes(label.piece_bytes);
  if (abort_.is_set()) return;  // maybe because the two sides differ
  std::byte* const window = windows_.on_host(to);
  std::ranges::copy(piece, window + layout.link_slot_offset(from, lane, before));
  std::memcpy(window + layout.link_label_offset(from, lane, before), &label, sizeof(label));
  backend::set_flag(windows_.flag_on_host(to, layout.link_ready_offset(from, lane)), before + 1);
}

void LinkMirror::deliver_taken(MessageReader& message) {
  const auto [from, to, lane] = take_lane(message);
  backend::set_flag(windows_.flag_on_host(from, windows_.layout().link_taken_offset(to, lane)),
                    message.take<std::uint32_t>());
}

}  // namespace tutti::transport::team
