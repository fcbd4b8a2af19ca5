// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_messenger.hpp"

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

backend::AbortReason take_failure(MessageReader& reader) {
  backend::AbortReason failure;
  failure.code = reader.take<std::uint32_t>();
  failure.length = reader.take_below<std::uint32_t>(failure.bytes.size() + 1);
  const auto text = reader.take_bytes(failure.length);
  std::memcpy(failure.bytes.data(), text.data(), text.size());
  return failure;
}

}  // namespace

SurvivorMessenger::SurvivorMessenger(const Membership& membership, const SurvivorBoard& shared,
                                     SurvivorNetwork& network)
    : membership_(membership),
      shared_(shared),
      network_(network),
      slots_(shared.slots.size()),
      sets_(shared.sets.size()),
      own_{.word = &word_, .slots = slots_, .mailboxes = {}, .sets = sets_, .newcomers = shared.newcomers},
      mail_(membership.rank_count()) {}

void SurvivorMessenger::begin() {
  told_.clear();  // those who are told may have been lost since
  carry();
  for (std::deque<Mail>& mail : mail_) mail.clear();  // of rounds that are over
}

void SurvivorMessenger::carry() {
  while (const auto message = network_.receive_from_survivors()) take(*message);
  if (decides()) {
    tell_stage();
  } else {
    tell_slot();
  }
}

void SurvivorMessenger::finish_sending(std::chrono::milliseconds longest) {
  const auto end = std::chrono::steady_clock::now() + longest;
  carry();
  while (network_.is_sending() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    carry();
  }
}

void SurvivorMessenger::send(std::size_t rank, const std::vector<std::byte>& message) {
  network_.send_to_survivor(static_cast<int>(rank), message);
}

void SurvivorMessenger::take(const Network::Message& message) {
  const auto source = static_cast<std::size_t>(message.source);
  if (source >= membership_.rank_count()) return;
  MessageReader reader(message);
  switch (static_cast<Kind>(reader.take_below<std::uint32_t>(static_cast<std::uint64_t>(Kind::last)))) {
    case Kind::slot:
      return take_slot(source, reader);
    case Kind::stage:
      return take_stage(source, reader);
    default:
      return take_mail(source, reader);
  }
}

void SurvivorMessenger::tell_slot() {
  const ShrinkSlot& slot = slots_[membership_.rank()];
  MessageWriter message;
  message.add(Kind::slot);
  message.add(slot.arrived.load());
  message.add(slot.made.load());
  message.add(slot.failed.load());
  message.add(slot.leaves_out_late.load());
  message.add(slot.change.load());
  add_set(message, own_.read(membership_.rank(), Set::leaving));
  add_failure(message, slot.failure);
  std::vector<std::byte> bytes = message.take();
  if (bytes == told_) return;
  for (const std::size_t rank : deciding(membership_)) send(rank, bytes);
  told_ = std::move(bytes);
}

void SurvivorMessenger::take_slot(std::size_t source, MessageReader& reader) {
  ShrinkSlot& slot = slots_[source];
  const auto arrived = reader.take<std::uint32_t>();
  slot.made.store(reader.take<std::uint32_t>());
  slot.failed.store(reader.take<std::uint32_t>());
  slot.leaves_out_late.store(reader.take<std::uint32_t>());
  slot.change.store(static_cast<RankChange>(
      reader.take_below<std::uint8_t>(static_cast<std::uint64_t>(RankChange::replace) + 1)));
  own_.write(source, Set::leaving, take_set(reader, slots_.size()));
  slot.failure = take_failure(reader);
  slot.arrived.store(arrived);
}

backend::AbortReason SurvivorMessenger::failure_before(std::uint32_t attempt) const {
  for (const std::size_t rank : deciding(membership_)) {
    const ShrinkSlot& slot = shared_.slots[rank];
    if (attempt == 0 || slot.failed.load() != attempt) continue;
    const backend::AbortReason failure = slot.failure;
    if (slot.failed.load() == attempt && failure.length <= failure.bytes.size()) return failure;
  }
  return {};
}

void SurvivorMessenger::tell_stage() {
  const ShrinkStage stage = shared_.current();
  MessageWriter message;
  message.add(Kind::stage);
  message.add(stage.word());
  for (const ShrinkSlot& slot : slots_) message.add(slot.arrived.load());
  add_set(message, stage.phase == Phase::open ? std::vector<std::size_t>()
                                              : shared_.read(stage.proposer, Set::proposed));
  add_failure(message, failure_before(stage.attempt));
  std::vector<std::byte> bytes = message.take();
  if (bytes == told_ || shared_.current() != stage) return;  // its proposer may write something else next
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (is_elsewhere(rank)) send(rank, bytes);
  }
  told_ = std::move(bytes);
}

void SurvivorMessenger::take_stage(std::size_t source, MessageReader& reader) {
  const auto stage = ShrinkStage::of(reader.take<std::uint64_t>());
  for (std::size_t each = 0; each < slots_.size(); ++each) {
    const auto arrived = reader.take<std::uint32_t>();
    if (each == membership_.rank()) seen_round_ = std::max(seen_round_, arrived);
  }
  const std::vector<std::size_t> proposed = take_set(reader, slots_.size());
  const backend::AbortReason failure = take_failure(reader);
  if (!is_deciding(source) || decides() || stage.proposer >= slots_.size() || stage.phase > Phase::made)
    reader.fail();
  if (std::ranges::find(proposed, membership_.rank()) != proposed.end())
    seen_round_ = std::max(seen_round_, stage.round + 1);
  if (stage.word() <= word_.load()) return;  // another rank has told it
  if (stage.phase != Phase::open) own_.write(stage.proposer, Set::proposed, proposed);
  if (failure.length > 0) {
    slots_[source].failure = failure;
    slots_[source].failed.store(stage.attempt);
  }
  word_.store(stage.word());
}

void SurvivorMessenger::take_mail(std::size_t source, MessageReader& reader) {
  Mail mail;
  mail.number.round = reader.take<std::uint32_t>();
  mail.number.chunk = reader.take<std::uint64_t>();
  const auto bytes = reader.take_bytes(reader.take<std::uint64_t>());
  mail.bytes.assign(bytes.begin(), bytes.end());
  mail_[source].push_back(std::move(mail));
}

void SurvivorMessenger::send_mail(std::size_t rank, MailNumber number, std::span<const std::byte> bytes) {
  MessageWriter message;
  message.add(Kind::mail);
  message.add(number.round);
  message.add(number.chunk);
  message.add(static_cast<std::uint64_t>(bytes.size()));
  message.add_bytes(bytes);
  send(rank, message.take());
}

bool SurvivorMessenger::has_mail(std::size_t rank, MailNumber number) {
  std::deque<Mail>& mail = mail_[rank];
  while (!mail.empty() && mail.front().number < number) mail.pop_front();
  return !mail.empty() && mail.front().number == number;
}

std::vector<std::byte> SurvivorMessenger::take_mail(std::size_t rank) {
  std::vector<std::byte> bytes = std::move(mail_[rank].front().bytes);
  mail_[rank].pop_front();
  return bytes;
}

bool SurvivorMessenger::is_undecidable(const std::vector<std::size_t>& leaving) const {
  return !decides() && std::ranges::all_of(deciding(membership_), [&](std::size_t rank) {
    return std::ranges::binary_search(leaving, rank) || is_lost(rank);
  });
}

}  // namespace tutti::transport::team
