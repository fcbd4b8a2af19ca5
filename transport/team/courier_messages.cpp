// SPDX-License-Identifier: Apache-2.0
#include "transport/team/courier_messages.hpp"

#include "backend/team_round.hpp"
#include "transport/team/courier.hpp"
#include "transport/team/team.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>

/// What couriers tell one another: what is new of their ranks, and what that changes in the mirrors.
namespace tutti::transport::ranks {
namespace {

/// How often the others hear that the process is alive.
constexpr int beats_per_timeout = 8;
/// What a record of a message tells.
enum class Record : std::uint32_t { state, call, mail, progress, parcel, abort, watched, hearsay };

void raise(backend::SharedFlag& flag, std::uint32_t value) {
  if (flag.value.load(std::memory_order_relaxed) != value) backend::set_flag(flag, value);
}

}  // namespace

void Courier::add_news(Writer& news) {
  const auto self = static_cast<std::size_t>(team_.rank());
  const RankBoard& board = team_.board(self);
  // The state before the rest: what a rank that leaves has said is complete.
  const std::uint32_t state = board.state.load();
  const std::uint64_t posted = board.last_sequence.load();
  for (; sequence_ < posted; ++sequence_) {
    const RankBoard::Entry& entry = board.entries[(sequence_ + 1) % RankBoard::history];
    news.add(Record::call);
    news.add(sequence_ + 1);
    news.add(RankBoard::now() - entry.posted_at());
    news.add(std::uint32_t{entry.is_captured()});
    news.add(entry.signature());
  }
  for (const Mailbox::Kind kind : {Mailbox::all, Mailbox::part}) {
    const Mailbox& box = team_.mailbox(self, kind);
    const std::uint64_t written = box.written.load();
    const std::uint64_t read = box.read.load();
    const bool has_mail = written != mail_[kind].written.load();
    if (!has_mail && read == mail_[kind].read) continue;
    news.add(Record::mail);
    news.add(std::uint32_t{kind});
    news.add(written);
    news.add(read);
    news.add(std::uint32_t{has_mail});
    if (has_mail) news.add_bytes(box.bytes);
    mail_[kind].written = written;
    mail_[kind].read = read;
  }
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  for (std::size_t own = 0; own < progress_.size(); ++own) {
    const auto member = static_cast<std::uint32_t>(team_.first_local() + own);
    const Progress now{
        .done = team_.done_flag(member).value.load(),
        .passed = team_.passed_flag(member).value.load(),
        .finished = flag_at(team_.host_window(member), layout.finished_offset(member)).value.load()};
    if (now == progress_[own]) continue;
    news.add(Record::progress);
    news.add(member);
    news.add(now);
    progress_[own] = now;
  }
  const std::int64_t watched_at = board.watched_at.load();
  if (std::chrono::nanoseconds(watched_at - watched_at_) > team_.timeout() / beats_per_timeout) {
    news.add(Record::watched);
    watched_at_ = watched_at;
    add_hearsay(news);
  }
  if (!abort_ && team_.abort_word().is_set()) {
    const backend::AbortReason& reason = team_.abort_word().reason();
    news.add(Record::abort);
    news.add(reason.code);
    news.add(reason.length);
    news.add_bytes(std::as_bytes(std::span(reason.text())));
    abort_ = true;
  }
  // After the reason: who has left is not taken for it.
  if (state != state_) {
    news.add(Record::state);
    news.add(state);
    state_ = state;
  }
}

void Courier::add_hearsay(Writer& news) const {
  const std::int64_t now = RankBoard::now();
  for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(team_.rank_count()); ++rank) {
    const RankBoard& board = team_.board(rank);
    if (rank == static_cast<std::uint32_t>(team_.rank()) || !team_.is_here(rank)) continue;
    if (board.watched_at.load() == 0 || board.carried_at.load() == 0) continue;  // it has hardly begun
    news.add(Record::hearsay);
    news.add(rank);
    news.add(board.last_sequence.load());
    news.add(team_.completed_by_rank(rank));
    news.add(now - board.watched_at.load());
    news.add(now - board.carried_at.load());
  }
}

void Courier::add_parcel(Writer& message, const Parcel& parcel,
                         std::span<const std::uint32_t> readers) const {
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const std::byte* const slot =
      team_.host_window(parcel.member) + layout.slots_offset() + layout.slot_shift(parcel.round);
  message.add(Record::parcel);
  message.add(parcel.member);
  message.add(parcel.round);
  message.add(parcel.bytes);
  message.add(static_cast<std::uint32_t>(readers.size()));
  message.add_bytes(std::as_bytes(readers));
  message.add_bytes({slot, parcel.bytes});
  // The member fills the slot again when it hears, maybe through another process, that the readers have
  // finished. That it comes after this copy is to be seen in this process too: by the flag that it waits for.
  for (const std::uint32_t reader : readers) {
    flag_at(team_.host_window(parcel.member), layout.finished_offset(reader))
        .value.fetch_add(0, std::memory_order_release);
  }
}

void Courier::deliver(const Network::Message& message) {
  Reader reader(message);
  const auto rank = static_cast<std::size_t>(message.source);
  while (!reader.empty()) {
    switch (reader.take<Record>()) {
      case Record::state:
        team_.board(rank).state.store(reader.take<std::uint32_t>());
        break;
      case Record::watched:
        team_.board(rank).watched_at.store(RankBoard::now());
        break;
      case Record::hearsay:
        deliver_hearsay(reader);
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
      case Record::abort: {
        const auto code = static_cast<ErrorCode>(reader.take<std::uint32_t>());
        const auto text = reader.take_bytes(reader.take<std::uint32_t>());
        team_.abort_as_elsewhere(code, {reinterpret_cast<const char*>(text.data()), text.size()});
        break;
      }
      default:
        reader.fail();
    }
  }
}

void Courier::deliver_call(std::size_t rank, Reader& message) {
  const auto sequence = message.take<std::uint64_t>();
  const auto age = message.take<std::int64_t>();
  const bool is_captured = message.take<std::uint32_t>() != 0;
  const auto signature = message.take<Signature>();
  RankBoard& board = team_.board(rank);
  board.entries[sequence % RankBoard::history].write(sequence, signature, is_captured,
                                                     RankBoard::now() - age);
  // Before others may go further ahead, to where words are written over.
  team_.compare_with_first(rank, signature, is_captured, sequence);
  board.last_sequence.store(sequence);
}

void Courier::deliver_hearsay(Reader& message) {
  const auto rank = message.take_below<std::uint32_t>(static_cast<std::uint64_t>(team_.rank_count()));
  Hearsay& hearsay = team_.board(rank).hearsay;
  const std::int64_t now = RankBoard::now();
  Hearsay::raise(hearsay.last_sequence, message.take<std::uint64_t>());
  Hearsay::raise(hearsay.completed, message.take<std::uint64_t>());
  Hearsay::raise(hearsay.watched_at, now - message.take<std::int64_t>());
  Hearsay::raise(hearsay.carried_at, now - message.take<std::int64_t>());
  Hearsay::raise(hearsay.heard_at, now);
}

void Courier::deliver_mail(std::size_t rank, Reader& message) {
  const auto kind = static_cast<Mailbox::Kind>(message.take_below<std::uint32_t>(2));
  Mailbox& box = team_.mailbox(rank, kind);
  const auto written = message.take<std::uint64_t>();
  const auto read = message.take<std::uint64_t>();
  if (message.take<std::uint32_t>() != 0)
    std::ranges::copy(message.take_bytes(box.bytes.size()), box.bytes.begin());
  box.written.store(written);
  box.read.store(read);
}

void Courier::deliver_progress(Reader& message) {
  const auto member = message.take_below<std::uint32_t>(team_.member_count());
  const auto now = message.take<Progress>();
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  for (const std::uint32_t here : members_here_) {
    raise(flag_at(team_.host_window(here), layout.finished_offset(member)), now.finished);
    // Parcels are for some readers only. The flags of the others stay comparable, behind the parcels of the
    // last rounds, which may still be on their way.
    constexpr std::uint32_t furthest = backend::TeamWindowLayout::milestone_distance;
    backend::SharedFlag& ready = flag_at(team_.host_window(here), layout.ready_offset(member));
    if (!backend::has_reached(ready.value.load(std::memory_order_relaxed), now.finished - furthest))
      backend::set_flag(ready, now.finished - furthest / 2);
  }
  raise(team_.done_flag(member), now.done);
  raise(team_.passed_flag(member), now.passed);
}

void Courier::deliver_parcel(Reader& message) {
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const auto member = message.take_below<std::uint32_t>(team_.member_count());
  const auto round = message.take<std::uint32_t>();
  const auto bytes = message.take_below<std::uint64_t>(layout.slot_bytes + 1);
  std::vector<std::uint32_t> readers(message.take_below<std::uint32_t>(team_.member_count()));
  for (std::uint32_t& reader : readers) reader = message.take_below<std::uint32_t>(team_.member_count());
  const auto payload = message.take_bytes(bytes);
  if (team_.abort_word().is_set()) return;  // maybe because the readers have called for something else
  std::ranges::copy(payload, team_.host_window(member) + layout.slots_offset() + layout.slot_shift(round));
  for (const std::uint32_t reader : readers)
    backend::set_flag(flag_at(team_.host_window(reader), layout.ready_offset(member)), round);
}

}  // namespace tutti::transport::ranks
