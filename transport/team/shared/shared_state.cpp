// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/shared_state.hpp"

#include "base/rounding.hpp"

#include <atomic>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

template <class T>
std::span<T> SharedState::place(std::byte* memory, std::size_t count) {
  bytes_ = round_up(bytes_, alignof(T));
  const std::size_t offset = std::exchange(bytes_, bytes_ + count * sizeof(T));
  if (memory == nullptr) return {};
  return {std::launder(reinterpret_cast<T*>(memory + offset)), count};
}

SharedState::SharedState(std::byte* memory, const Shape& shape) : shape_(shape) {
  abort_word_ = place<backend::AbortWord>(memory, 1).data();
  static_cast<void>(place<backend::AbortReason>(memory, shape.ranks));  // the word finds them behind itself
  statuses_ = place<RankStatus>(memory, shape.ranks);
  first_calls_ = place<FirstCalls>(memory, 1).data();
  done_ = place<backend::SharedFlag>(memory, shape.members);
  passed_ = place<backend::SharedFlag>(memory, shape.members);
  records_ = place<backend::TeamRecord>(memory, shape.members);
  mailboxes_ = place<Mailbox>(memory, 2 * shape.ranks);
  survivors_.word = place<std::atomic<std::uint64_t>>(memory, 1).data();
  const std::size_t participants = shape.ranks + SurvivorBoard::most_newcomers;
  survivors_.newcomers = SurvivorBoard::most_newcomers;
  survivors_.slots = place<ShrinkSlot>(memory, participants);
  survivors_.mailboxes = place<Mailbox>(memory, participants);
  survivors_.sets = place<std::atomic<std::uint64_t>>(
      memory, participants * SurvivorBoard::set_count * SurvivorBoard::words_of_set(participants));
  link_logs_ = place<LinkLog>(memory, shape.has_links ? 2 * shape.members * shape.members : 0);
  const std::size_t registering = shape.has_registrations ? shape.ranks : 0;
  registrations_ = place<RegistrationTable>(memory, registering);
  views_ = place<RegistrationView>(memory, RegistrationTables::view_count(registering, shape.members));
}

std::string SharedState::last_in_words(std::size_t rank, std::uint64_t last_call) const {
  const std::uint64_t word = status(rank).last_message.load();
  const LastMessage last = LastMessage::of(word);
  if (word == 0 || last.after_call != (last_call & LastMessage::call_mask))
    return status(rank).call_in_words(last_call);
  const LinkEnd end = last.is_sent ? LinkEnd::sender : LinkEnd::receiver;
  return fmt::format("{} of message #{} from member {} to member {}", last.is_sent ? "send" : "recv",
                     link_log(last.from, last.to, end).made(), last.from, last.to);
}

RegistrationTables SharedState::registration_tables(const Membership& membership) const {
  return {.rank = membership.rank(),
          .rank_of_member = membership.rank_of_member(),
          .shares_process = membership.shares_process(),
          .statuses = statuses_,
          .registrations = registrations_,
          .views = views_};
}

std::vector<std::size_t> SharedState::ranks_behind(std::uint64_t sequence) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < statuses_.size(); ++rank) {
    if (statuses_[rank].last_sequence.load() < sequence) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace tutti::transport::team
