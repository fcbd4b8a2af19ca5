// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_post.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::transport::team {
namespace {

using Phase = ShrinkStage::Phase;
using Set = SurvivorBoard::Set;

void add_set(MessageWriter& message, const std::vector<std::size_t>& participants) {
  message.add(static_cast<std::uint64_t>(participants.size()));
  for (const std::size_t each : participants) message.add(static_cast<std::uint64_t>(each));
}

std::vector<std::size_t> take_set(MessageReader& reader, std::size_t participants) {
  std::vector<std::size_t> set(reader.take_below<std::uint64_t>(participants + 1));
  for (std::size_t& each : set) each = reader.take_below<std::uint64_t>(participants);
  return set;
}

void add_failure(MessageWriter& message, const backend::AbortReason& failure) {
  message.add(failure.code);
  message.add(failure.length);
  message.add_bytes(std::as_bytes(std::span(failure.text())));
}

void take_failure(MessageReader& reader, backend::AbortReason& failure) {
  failure.code = reader.take<std::uint32_t>();
  failure.length = reader.take_below<std::uint32_t>(failure.bytes.size() + 1);
  const auto text = reader.take_bytes(failure.length);
  std::memcpy(failure.bytes.data(), text.data(), text.size());
}

}  // namespace

SurvivorPost::SurvivorPost(const Membership& membership, const SurvivorBoard& shared,
                           SurvivorNetwork& network, std::chrono::milliseconds timeout)
    : membership_(membership),
      shared_(shared),
      network_(network),
      timeout_(timeout),
      slots_(shared.slots.size()),
      sets_(shared.sets.size()),
      own_{.word = &word_, .slots = slots_, .mailboxes = {}, .sets = sets_, .newcomers = shared.newcomers},
      mail_(membership.rank_count()),
      heard_at_(membership.rank_count()) {}

void SurvivorPost::begin() {
  told_at_ = {};
  carry();
  began_ = Clock::now();
}

void SurvivorPost::carry() {
  while (const auto message = network_.receive_from_survivors()) take(*message);
  if (decides()) {
    tell_stage();
  } else {
    tell_slot();
  }
}

void SurvivorPost::finish_sending(std::chrono::milliseconds longest) {
  carry();
  const auto end = Clock::now() + longest;
  while (network_.is_sending() && Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    carry();
  }
}

void SurvivorPost::send(std::size_t rank, const MessageWriter& message) {
  MessageWriter copy(message);
  network_.send_to_survivor(static_cast<int>(rank), copy.take());
}

void SurvivorPost::take(const Network::Message& message) {
  const auto source = static_cast<std::size_t>(message.source);
  MessageReader reader(message);
  heard_at_[source] = Clock::now();
  switch (static_cast<Kind>(reader.take_below<std::uint32_t>(static_cast<std::uint64_t>(Kind::last)))) {
    case Kind::slot:
      return take_slot(source, reader);
    case Kind::stage:
      return take_stage(source, reader);
    default:
      return take_mail(source, reader);
  }
}

void SurvivorPost::tell_slot() {
  const ShrinkSlot& slot = slots_[membership_.rank()];
  const SlotNews news{slot.arrived.load(), slot.made.load(), slot.failed.load(), slot.leaves_out_late.load()};
  if (news == told_slot_ && !is_due()) return;
  MessageWriter message;
  message.add(Kind::slot);
  message.add(news);
  message.add(slot.change.load());
  add_set(message, own_.read(membership_.rank(), Set::leaving));
  add_failure(message, slot.failure);
  for (const std::size_t rank : deciding(membership_)) send(rank, message);
  told_slot_ = news;
  told_at_ = Clock::now();
}

void SurvivorPost::take_slot(std::size_t source, MessageReader& reader) {
  ShrinkSlot& slot = slots_[source];
  const auto news = reader.take<SlotNews>();
  slot.change.store(reader.take<RankChange>());
  own_.write(source, Set::leaving, take_set(reader, slots_.size()));
  take_failure(reader, slot.failure);
  slot.arrived.store(news.arrived);
  slot.made.store(news.made);
  slot.failed.store(news.failed);
  slot.leaves_out_late.store(news.leaves_out_late);
}

const ShrinkSlot* SurvivorPost::failed_before(std::uint32_t attempt) const {
  for (std::size_t each = 0; attempt > 0 && each < membership_.rank_count(); ++each) {
    const ShrinkSlot& slot = board_of(each).slots[each];
    if (slot.failed.load() == attempt) return &slot;
  }
  return nullptr;
}

void SurvivorPost::tell_stage() {
  const ShrinkStage stage = shared_.current();
  if (stage.word() == told_word_ && !is_due()) return;
  MessageWriter message;
  message.add(Kind::stage);
  message.add(stage.word());
  add_set(message, stage.phase == Phase::open ? std::vector<std::size_t>()
                                              : shared_.read(stage.proposer, Set::proposed));
  const ShrinkSlot* const failed = failed_before(stage.attempt);
  add_failure(message, failed == nullptr ? backend::AbortReason{} : failed->failure);
  if (shared_.current() != stage) return;  // its proposer may have written something else since
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (is_elsewhere(rank)) send(rank, message);
  }
  told_word_ = stage.word();
  told_at_ = Clock::now();
}

void SurvivorPost::take_stage(std::size_t source, MessageReader& reader) {
  const auto stage = ShrinkStage::of(reader.take<std::uint64_t>());
  if (stage.proposer >= slots_.size()) reader.fail();
  const std::vector<std::size_t> proposed = take_set(reader, slots_.size());
  backend::AbortReason failure;
  take_failure(reader, failure);
  if (stage.word() <= word_.load()) return;  // another rank has told it
  if (stage.phase != Phase::open) own_.write(stage.proposer, Set::proposed, proposed);
  if (failure.length > 0) {
    slots_[source].failure = failure;
    slots_[source].failed.store(stage.attempt);
  }
  word_.store(stage.word());
}

void SurvivorPost::take_mail(std::size_t source, MessageReader& reader) {
  Mail mail;
  mail.number.round = reader.take<std::uint32_t>();
  mail.number.chunk = reader.take<std::uint64_t>();
  const auto bytes = reader.take_bytes(reader.take<std::uint64_t>());
  mail.bytes.assign(bytes.begin(), bytes.end());
  mail_[source].push_back(std::move(mail));
}

void SurvivorPost::send_mail(std::size_t rank, MailNumber number, std::span<const std::byte> bytes) {
  MessageWriter message;
  message.add(Kind::mail);
  message.add(number.round);
  message.add(number.chunk);
  message.add(static_cast<std::uint64_t>(bytes.size()));
  message.add_bytes(bytes);
  send(rank, message);
}

bool SurvivorPost::has_mail(std::size_t rank, MailNumber number) {
  std::deque<Mail>& mail = mail_[rank];
  while (!mail.empty() && mail.front().number < number) mail.pop_front();
  return !mail.empty() && mail.front().number == number;
}

std::vector<std::byte> SurvivorPost::take_mail(std::size_t rank) {
  Mail mail = std::move(mail_[rank].front());
  mail_[rank].pop_front();
  return std::move(mail.bytes);
}

bool SurvivorPost::is_lost(std::size_t rank, bool may_judge) const {
  if (!is_reachable(rank)) return true;
  const bool has_come = board_of(rank).slots[rank].arrived.load() == board().current().round + 1;
  return may_judge && has_come && is_silent(rank);
}

bool SurvivorPost::is_undecidable(bool may_judge) const {
  if (decides()) return false;
  bool is_any_there = false;
  bool is_any_heard = false;
  for (const std::size_t rank : deciding(membership_)) {
    if (!is_reachable(rank)) continue;
    is_any_there = true;
    if (!is_heard(rank)) continue;
    is_any_heard = true;
    if (!may_judge || !is_silent(rank)) return false;
  }
  return !is_any_there || is_any_heard;  // if none was heard, they may just be late
}

}  // namespace tutti::transport::team
