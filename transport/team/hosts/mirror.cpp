// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/mirror.hpp"

#include "backend/team_round.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"

#include <algorithm>

namespace tutti::transport::team {
namespace {

/// The number of times per timeout that the others hear that the process is alive.
constexpr int beats_per_timeout = 8;
}  // namespace

Mirror::Mirror(const Membership& membership, const SharedState& state, const Windows& windows,
               const Progress& progress, CallLog& calls, const FlightRecord& record, Abort& abort,
               std::chrono::milliseconds timeout)
    : membership_(membership),
      state_(state),
      windows_(windows),
      progress_(progress),
      calls_(calls),
      record_(record),
      abort_(abort),
      timeout_(timeout),
      links_(membership, state, windows, abort),
      progress_sent_(membership.local_count()) {
  for (std::uint32_t member = 0; member < membership.member_count(); ++member) {
    if (membership.is_on_this_host(membership.rank_of_member()[member])) members_here_.push_back(member);
  }
}

bool Mirror::has_sent(Mailbox::Kind kind) const noexcept {
  return mail_sent_[kind].written.load() == state_.mailbox(membership_.rank(), kind).written.load();
}

bool Mirror::is_ready(const Parcel& parcel) const noexcept {
  const backend::SharedFlag& flag = windows_.flag_on_host(
      parcel.readers.back(), windows_.layout().ready_offset(parcel.member, parcel.round));
  return backend::RoundNumber::has_come(flag.round.load(std::memory_order_acquire), parcel.round);
}

void Mirror::add_news(MessageWriter& news) {
  const RankStatus& status = state_.status(membership_.rank());
  add_calls(news, status.last_sequence.load());
  for (const Mailbox::Kind kind : {Mailbox::all, Mailbox::part}) add_mail(news, kind);
  add_progress(news);
  if (const std::uint64_t last = status.last_message.load(); last != message_sent_) {
    news.add(Record::last_message);
    news.add(last);
    message_sent_ = last;
  }
  const std::int64_t watched_at = status.watched_at.load();
  if (std::chrono::nanoseconds(watched_at - watched_at_sent_) > timeout_ / beats_per_timeout) {
    news.add(Record::watched);
    watched_at_sent_ = watched_at;
    add_gossip(news);
  }
  add_abort(news);
  // The state comes after the reason: who has left is not taken for it.
  if (state_seen_ != state_sent_) {
    news.add(Record::state);
    news.add(state_seen_);
    state_sent_ = state_seen_;
  }
}

void Mirror::add_calls(MessageWriter& news, std::uint64_t posted) {
  const RankStatus& status = state_.status(membership_.rank());
  for (; sequence_sent_ < posted; ++sequence_sent_) {
    const RankStatus::Entry& entry = status.entries[(sequence_sent_ + 1) % RankStatus::history];
    news.add(Record::call);
    news.add(sequence_sent_ + 1);
    news.add(RankStatus::now() - entry.posted_at());
    news.add(std::uint32_t{entry.is_captured()});
    news.add(entry.signature());
  }
}

void Mirror::add_mail(MessageWriter& news, Mailbox::Kind kind) {
  const Mailbox& box = state_.mailbox(membership_.rank(), kind);
  Mail& sent = mail_sent_[kind];
  const std::uint64_t written = box.written.load();
  const std::uint64_t read = box.read.load();
  const bool has_mail = written != sent.written.load();
  if (!has_mail && read == sent.read) return;
  news.add(Record::mail);
  news.add(std::uint32_t{kind});
  news.add(written);
  news.add(read);
  news.add(std::uint32_t{has_mail});
  if (has_mail) news.add_bytes(box.bytes);
  sent.written = written;
  sent.read = read;
}

void Mirror::add_progress(MessageWriter& news) {
  const backend::TeamWindowLayout& layout = windows_.layout();
  for (std::size_t local = 0; local < progress_sent_.size(); ++local) {
    const auto member = static_cast<std::uint32_t>(membership_.first_local() + local);
    const MemberProgress now{
        .done = state_.done_flag(member).value.load(),
        .passed = state_.passed_flag(member).value.load(),
        .finished = windows_.flag_on_host(member, layout.finished_offset(member)).value.load()};
    if (now == progress_sent_[local]) continue;
    news.add(Record::progress);
    news.add(member);
    news.add(now);
    progress_sent_[local] = now;
  }
}

void Mirror::add_abort(MessageWriter& news) {
  if (is_abort_sent_ || !abort_.is_set()) return;
  const backend::AbortReason& reason = abort_.word().reason();
  news.add(Record::abort);
  news.add(reason.code);
  news.add(reason.length);
  news.add_bytes(std::as_bytes(std::span(reason.text())));
  is_abort_sent_ = true;
}

void Mirror::add_gossip(MessageWriter& news) const {
  const std::int64_t now = RankStatus::now();
  for (std::uint32_t rank = 0; rank < static_cast<std::uint32_t>(membership_.rank_count()); ++rank) {
    const RankStatus& status = state_.status(rank);
    if (rank == membership_.rank() || !membership_.is_on_this_host(rank)) continue;
    if (status.watched_at.load() == 0 || status.carried_at.load() == 0) continue;  // it has hardly begun
    news.add(Record::gossip);
    news.add(rank);
    news.add(status.last_sequence.load());
    news.add(progress_.completed_by_rank(rank));
    news.add(now - status.watched_at.load());
    news.add(now - status.carried_at.load());
  }
}

void Mirror::add_parcel(MessageWriter& message, const Parcel& parcel,
                        std::span<const std::uint32_t> readers) const {
  const backend::TeamWindowLayout& layout = windows_.layout();
  const std::byte* const slot =
      windows_.on_host(parcel.member) + layout.slots_offset() + layout.slot_shift(parcel.round);
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
    windows_.flag_on_host(parcel.member, layout.finished_offset(reader))
        .value.fetch_add(0, std::memory_order_release);
  }
}

}  // namespace tutti::transport::team
