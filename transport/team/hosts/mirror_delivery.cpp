// SPDX-License-Identifier: Apache-2.0
#include "backend/team_round.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"
#include "transport/team/hosts/mirror.hpp"

#include <algorithm>

/// Writes messages of other hosts into the mirrors.
namespace tutti::transport::team {
namespace {

void raise(backend::SharedFlag& flag, std::uint32_t value) {
  if (flag.value.load(std::memory_order_relaxed) != value) backend::set_flag(flag, value);
}

}  // namespace

void Mirror::deliver(const Network::Message& message) {
  MessageReader reader(message);
  const auto rank = static_cast<std::size_t>(message.source);
  while (!reader.empty()) {
    switch (reader.take<Record>()) {
      case Record::state:
        state_.status(rank).state.store(reader.take<std::uint32_t>());
        break;
      case Record::watched:
        state_.status(rank).watched_at.store(RankStatus::now());
        break;
      case Record::gossip:
        deliver_gossip(reader);
        break;
      case Record::last_message:
        deliver_last_message(rank, reader);
        break;
      case Record::call:
        deliver_call(rank, reader);
        break;
      case Record::mail:
        deliver_mail(rank, reader);
        break;
      case Record::progress:
        deliver_progress(reader);
        break;
      case Record::parcel:
        deliver_parcel(reader);
        break;
      case Record::link_log:
        links_.deliver_log(reader);
        break;
      case Record::link_piece:
        links_.deliver_piece(reader);
        break;
      case Record::link_taken:
        links_.deliver_taken(reader);
        break;
      case Record::abort: {
        const auto code = static_cast<ErrorCode>(reader.take<std::uint32_t>());
        const auto text = reader.take_bytes(reader.take<std::uint32_t>());
        end_as_elsewhere(code, {reinterpret_cast<const char*>(text.data()), text.size()});
        break;
      }
      default:
        reader.fail();
    }
  }
}

void Mirror::end_as_elsewhere(ErrorCode code, std::string_view reason) noexcept {
  if (abort_.set(code, reason) && code == ErrorCode::timeout)
    record_.keep(record_.of_timeout(UINT64_MAX, reason));
}

void Mirror::deliver_call(std::size_t rank, MessageReader& message) {
  const auto sequence = message.take<std::uint64_t>();
  const auto age = message.take<std::int64_t>();
  const bool is_captured = message.take<std::uint32_t>() != 0;
  const auto signature = message.take<Signature>();
  RankStatus& status = state_.status(rank);
  status.entries[sequence % RankStatus::history].write(sequence, signature, is_captured,
                                                       RankStatus::now() - age);
  // Before others may go further ahead, to where words are written over.
  calls_.compare_with_first(rank, signature, is_captured, sequence);
  status.last_sequence.store(sequence);
}

void Mirror::deliver_last_message(std::size_t rank, MessageReader& message) {
  const auto word = message.take<std::uint64_t>();
  const LastMessage last = LastMessage::of(word);
  if (std::max(last.from, last.to) >= membership_.member_count()) message.fail();
  state_.status(rank).last_message.store(word);
}

void Mirror::deliver_gossip(MessageReader& message) {
  const auto rank = message.take_below<std::uint32_t>(membership_.rank_count());
  Gossip& gossip = state_.status(rank).gossip;
  const std::int64_t now = RankStatus::now();
  Gossip::raise(gossip.last_sequence, message.take<std::uint64_t>());
  Gossip::raise(gossip.completed, message.take<std::uint64_t>());
  Gossip::raise(gossip.watched_at, now - message.take<std::int64_t>());
  Gossip::raise(gossip.carried_at, now - message.take<std::int64_t>());
  Gossip::raise(gossip.heard_at, now);
}

void Mirror::deliver_mail(std::size_t rank, MessageReader& message) {
  const auto kind = static_cast<Mailbox::Kind>(message.take_below<std::uint32_t>(2));
  Mailbox& box = state_.mailbox(rank, kind);
  const auto written = message.take<std::uint64_t>();
  const auto read = message.take<std::uint64_t>();
  if (message.take<std::uint32_t>() != 0)
    std::ranges::copy(message.take_bytes(box.bytes.size()), box.bytes.begin());
  box.written.store(written);
  box.read.store(read);
}

void Mirror::deliver_progress(MessageReader& message) {
  const auto member = message.take_below<std::uint32_t>(membership_.member_count());
  const auto now = message.take<MemberProgress>();
  const backend::TeamWindowLayout& layout = windows_.layout();
  for (const std::uint32_t here : members_here_)
    raise(windows_.flag_on_host(here, layout.finished_offset(member)), now.finished);
  raise(state_.done_flag(member), now.done);
  raise(state_.passed_flag(member), now.passed);
}

void Mirror::deliver_parcel(MessageReader& message) {
  const backend::TeamWindowLayout& layout = windows_.layout();
  const auto member = message.take_below<std::uint32_t>(membership_.member_count());
  const auto round = message.take<std::uint64_t>();
  const auto bytes = message.take_below<std::uint64_t>(layout.slot_bytes + 1);
  std::vector<std::uint32_t> readers(message.take_below<std::uint32_t>(membership_.member_count()));
  for (std::uint32_t& reader : readers)
    reader = message.take_below<std::uint32_t>(membership_.member_count());
  const auto payload = message.take_bytes(bytes);
  if (abort_.is_set()) return;  // maybe because the readers have called for something else
  std::ranges::copy(payload, windows_.on_host(member) + layout.slots_offset() + layout.slot_shift(round));
  for (const std::uint32_t reader : readers)
    backend::set_round(windows_.flag_on_host(reader, layout.ready_offset(member, round)), round);
}

}  // namespace tutti::transport::team
