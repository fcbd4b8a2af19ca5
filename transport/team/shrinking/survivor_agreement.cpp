// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"

#include "base/ranks_in_words.hpp"
#include "os/shared_memory.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace tutti::transport::team {
namespace {

using Phase = ShrinkStage::Phase;
using Set = SurvivorBoard::Set;

std::string leaving_in_words(const std::vector<std::size_t>& ranks) {
  return ranks.empty() ? "nobody" : ranks_in_words({ranks.begin(), ranks.end()});
}

constexpr const char* name_of(RankChange change) {
  if (change == RankChange::grow) return "Communicator::grow";
  return change == RankChange::shrink ? "Communicator::shrink" : "Communicator::replace";
}

/// Stores a number that a participant may have stored already for a later round, before it was resumed.
void raise(std::atomic<std::uint32_t>& number, std::uint32_t to) {
  for (std::uint32_t seen = number.load(); seen < to && !number.compare_exchange_weak(seen, to);) continue;
}

}  // namespace

std::vector<std::size_t> in_new_order(const std::vector<std::size_t>& going_on, std::size_t ranks) {
  std::vector<std::size_t> order;
  auto newcomer = std::ranges::lower_bound(going_on, ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (std::ranges::binary_search(going_on, rank)) {
      order.push_back(rank);
    } else if (newcomer != going_on.end()) {
      order.push_back(*newcomer++);
    }
  }
  order.insert(order.end(), newcomer, going_on.end());
  return order;
}

SurvivorAgreement::SurvivorAgreement(const SurvivorBoard& board, std::size_t self, ShrinkingTeam team,
                                     const ShrinkWish& wish)
    : SurvivorAgreement(board, self, std::move(team), wish, board.current().attempt) {
  ShrinkSlot& own = board_.slots[self_];
  board_.write(self_, Set::leaving, wish.leaving);
  own.leaves_out_late.store(wish.leaves_out_late ? 1 : 0);
  own.change.store(wish.change);
  own.fewest_new.store(static_cast<std::uint32_t>(wish.fewest_new));
  own.most_new.store(static_cast<std::uint32_t>(wish.most_new));
  own.meeting_point.store(wish.meeting_point);
  own.holds_entrance.store(team_.holds_entrance ? 1 : 0);
  own.process_space.store(process_space());
  own.process.store(getpid());
}

SurvivorAgreement::SurvivorAgreement(const SurvivorBoard& board, std::size_t self, ShrinkingTeam team,
                                     const ShrinkWish& wish, std::uint32_t attempt)
    : board_(board),
      self_(self),
      team_(std::move(team)),
      wish_(wish),
      attempt_(attempt),
      is_given_up_(board_.slots.size()),
      watched_(board_.slots.size()),
      began_(Clock::now()),
      pauses_(team_.timeout) {}

void SurvivorAgreement::run(const std::function<void(Exchange&)>& make,
                            const std::function<void()>& discard) {
  try {
    while (!make_together(seal(), make)) discard();
  } catch (...) {
    withdraw();
    discard();
    tell_outcome();
    throw;
  }
  tell_outcome();
}

void SurvivorAgreement::pause() {
  using namespace std::chrono_literals;
  team_.wait_elsewhere();
  if (team_.messenger != nullptr) {
    team_.messenger->carry();
    end_for_others();
    require_decision();
  }
  std::this_thread::sleep_for(std::clamp<Clock::duration>((Clock::now() - began_) / 64, 50us, 1ms));
}

ShrinkStage SurvivorAgreement::current() {
  const ShrinkStage stage = board_.current();
  if (!decides() && stage.attempt != attempt_ &&
      (!first_round_ || team_.messenger->seen_round() < *first_round_)) {
    attempt_ = stage.attempt;
    first_round_.reset();
  }
  if (stage.attempt != attempt_) throw Error(failure());
  return stage;
}

bool SurvivorAgreement::is_among(const std::vector<std::size_t>& ranks) const {
  return std::ranges::find(ranks, self_) != ranks.end();
}

bool SurvivorAgreement::is_lost(std::size_t participant, bool may_judge) {
  if (participant == self_) return false;
  if (is_newcomer(participant) || is_newcomer(self_)) return is_process_gone(participant);
  if (team_.messenger != nullptr && team_.messenger->is_elsewhere(participant) &&
      team_.messenger->is_lost(participant))
    return true;
  return team_.is_lost(participant, may_judge);
}

bool SurvivorAgreement::is_process_gone(std::size_t participant) {
  const ShrinkSlot& slot = slot_of(participant);
  const pid_t number = slot.process.load();
  if (number == 0) return true;
  Watched& watched = watched_[participant];
  if (watched.number != number) {
    // A process that is numbered elsewhere cannot be watched from here. This one is never gone.
    const bool is_watched = slot.process_space.load() == process_space() && number != getpid();
    watched = {.number = number, .process = is_watched ? PeerProcess(number) : PeerProcess()};
  }
  return watched.process.is_gone();
}

bool SurvivorAgreement::is_any_lost(const std::vector<std::size_t>& participants, bool may_judge) {
  return std::ranges::any_of(
      participants, [&](std::size_t each) { return is_lost(each, may_judge) || has_withdrawn(each); });
}

const char* SurvivorAgreement::function() const noexcept {
  return is_newcomer(self_) ? "Communicator::join" : name_of(wish_.change);
}

std::string SurvivorAgreement::in_words(const std::vector<std::size_t>& participants) const {
  std::vector<int> ranks;
  std::vector<pid_t> processes;
  for (const std::size_t each : participants) {
    if (is_newcomer(each)) {
      processes.push_back(slot_of(each).process.load());
    } else {
      ranks.push_back(static_cast<int>(each));
    }
  }
  const std::string old = ranks_in_words(ranks);
  if (processes.empty()) return old;
  std::string added = fmt::format("{} new {}", processes.size(), processes.size() == 1 ? "rank" : "ranks");
  // Who has joined or left is no longer known here.
  if (std::ranges::find(processes, 0) == processes.end())
    added += fmt::format(" (process {})", fmt::join(processes, ", "));
  return old.empty() ? added : fmt::format("{} and {}", old, added);
}

void SurvivorAgreement::advance(const ShrinkStage& from, const ShrinkStage& to) const {
  if (decides()) static_cast<void>(board_.advance(from, to));
}

void SurvivorAgreement::open_another_round(const ShrinkStage& from) const {
  advance(from, {.attempt = from.attempt, .round = from.round + 1});
}

ShrinkStage SurvivorAgreement::seal() {
  begin_to_wait();
  for (std::optional<std::uint32_t> round;; pause()) {
    const ShrinkStage stage = current();
    if (round != stage.round) begin_to_wait();
    round = stage.round;
    const bool may_judge = pauses_.may_judge(Clock::now());
    if (stage.phase != Phase::open) admission_.close();
    if (stage.phase == Phase::made) leave(stage);
    if (stage.phase == Phase::open) {
      arrive(stage);
      if (is_newcomer(self_)) {
        wait_to_be_let_in(may_judge);
      } else if (decides()) {
        propose(stage, may_judge);
      }
    } else if (is_among(survivors_of(stage)) && has_arrived(self_, stage)) {
      if (is_current(stage)) return stage;
    } else {
      wait_without(stage, may_judge);
    }
  }
}

void SurvivorAgreement::arrive(const ShrinkStage& open) {
  raise(slot_of(self_).arrived, open.round + 1);
  if (!first_round_) first_round_ = open.round + 1;
}

void SurvivorAgreement::propose(const ShrinkStage& open, bool may_judge) {
  std::vector<std::size_t> arrived;
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < board_.ranks(); ++rank) {
    if (std::ranges::binary_search(wish_.leaving, rank) || is_lost(rank, may_judge)) continue;
    if (has_arrived(rank, open)) {
      arrived.push_back(rank);
    } else if (!is_given_up_[rank]) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty()) {
    if (!may_judge || !is_time_over()) return;
    if (!wish_.leaves_out_late) return fail(open, ErrorCode::timeout, late_in_words(missing));
  }
  // Not before: who arrives after an attempt has failed takes part in the next one.
  if (!are_alike(open, arrived)) return;
  if (wish_.change != RankChange::shrink) {
    const auto newcomers = admission_.admit(open, arrived, may_judge);
    if (!newcomers) return;
    arrived.insert(arrived.end(), newcomers->begin(), newcomers->end());
  }
  board_.write(self_, Set::proposed, arrived);
  advance(open, {.attempt = open.attempt,
                 .round = open.round,
                 .phase = Phase::sealed,
                 .proposer = static_cast<std::uint32_t>(self_)});
}

void SurvivorAgreement::wait_to_be_let_in(bool may_judge) {
  bool is_any_left = false;
  for (std::size_t rank = 0; rank < board_.ranks(); ++rank)
    is_any_left = is_any_left || !is_process_gone(rank);
  if (!is_any_left) {
    throw Error(ErrorCode::peer_unavailable,
                fmt::format("{}: the ranks that let this process in are lost", function()));
  }
  // They bound their waits themselves.
  if (may_judge && is_time_over(3)) {
    throw Error(
        ErrorCode::timeout,
        fmt::format("{}: the ranks let this process in and do not go on: are they stopped?", function()));
  }
}

std::string SurvivorAgreement::late_in_words(const std::vector<std::size_t>& missing) const {
  return fmt::format("{} did not come within {} ms, and nobody is left out who is late", in_words(missing),
                     wish_.timeout.count());
}

bool SurvivorAgreement::are_alike(const ShrinkStage& open, const std::vector<std::size_t>& arrived) {
  for (const std::size_t rank : arrived) {
    const std::string difference = difference_from(rank);
    if (difference.empty()) continue;
    fail(open, ErrorCode::invalid_argument, difference);
    return false;
  }
  return true;
}

std::string SurvivorAgreement::difference_from(std::size_t rank) const {
  const ShrinkSlot& slot = slot_of(rank);
  if (const RankChange change = slot.change.load(); change != wish_.change) {
    return fmt::format("rank {} calls {} and rank {} {}, expected the same", self_, name_of(wish_.change),
                       rank, name_of(change));
  }
  if (const auto leaving = board_of(rank).read(rank, Set::leaving); leaving != wish_.leaving) {
    return fmt::format("options.leaving is {} on rank {} and {} on rank {}, expected the same",
                       leaving_in_words(wish_.leaving), self_, leaving_in_words(leaving), rank);
  }
  if ((slot.leaves_out_late.load() != 0) != wish_.leaves_out_late)
    return fmt::format("options.late differs between ranks {} and {}, expected the same", self_, rank);
  if (slot.fewest_new.load() != wish_.fewest_new || slot.most_new.load() != wish_.most_new) {
    return fmt::format(
        "options.fewest and options.most are {} and {} on rank {} and {} and {} on rank {}, "
        "expected the same",
        wish_.fewest_new, wish_.most_new, self_, slot.fewest_new.load(), slot.most_new.load(), rank);
  }
  if (slot.meeting_point.load() != wish_.meeting_point) {
    return fmt::format("options.meeting_point differs between ranks {} and {}, expected the same", self_,
                       rank);
  }
  return {};
}

void SurvivorAgreement::wait_without(const ShrinkStage& sealed, bool may_judge) {
  const std::vector<std::size_t> survivors = survivors_of(sealed);
  if (!is_current(sealed)) return;
  if (is_any_lost(survivors, may_judge)) return open_another_round(sealed);
  // They bound their waits themselves. If they open another round all the same, nobody waits for this rank.
  if (may_judge && is_time_over(2)) leave(sealed);
}

bool SurvivorAgreement::make_together(const ShrinkStage& sealed, const std::function<void(Exchange&)>& make) {
  const std::vector<std::size_t> survivors = survivors_of(sealed);
  if (!is_current(sealed)) return false;
  // Whoever does not survive, and whatever still waits, learns that the team is over.
  const auto end_team = [&] {
    team_.end(fmt::format("{} go on as another communicator", in_words(survivors)));
  };
  if (wish_.change != RankChange::grow) end_team();
  begin_to_wait();
  SurvivorExchange exchange(*this, sealed, survivors);
  try {
    make(exchange);
  } catch (...) {
    give_up_making(sealed, survivors, backend::Escaped::current());
    return false;
  }
  const bool is_made = commit(sealed, survivors);
  if (is_made) end_team();
  return is_made;
}

void SurvivorAgreement::give_up_making(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors,
                                       const backend::Escaped& escaped) {
  // A process that is being killed loses its memory before it is seen to be gone.
  constexpr std::chrono::milliseconds longest_death{200};
  for (const auto failed_at = Clock::now();; pause()) {
    if (!is_current(sealed)) return;
    const bool is_for_loss = is_any_lost(survivors, pauses_.may_judge(Clock::now()));
    if (is_for_loss && decides()) return open_another_round(sealed);
    // Those who decide see the loss, too, unless this rank alone is cut off from another one.
    if (Clock::now() - failed_at >= (is_for_loss ? wish_.timeout : longest_death)) break;
  }
  fail(sealed, escaped.code, escaped.what);
}

bool SurvivorAgreement::commit(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors) {
  ShrinkStage made = sealed;
  made.phase = Phase::made;
  raise(slot_of(self_).made, sealed.round + 1);
  if (!decides()) {
    while (is_current(sealed)) pause();
    return is_current(made);
  }
  const auto missing = [&] {
    std::vector<std::size_t> ranks;
    std::ranges::copy_if(survivors, std::back_inserter(ranks),
                         [&](std::size_t rank) { return slot_of(rank).made.load() != sealed.round + 1; });
    return ranks;
  };
  try {
    if (wait_in(sealed, missing)) advance(sealed, made);
  } catch (const Error& error) {
    fail(sealed, error.code(), error.what());
  }
  return is_current(made);
}

bool SurvivorAgreement::wait_in(const ShrinkStage& sealed,
                                const std::function<std::vector<std::size_t>()>& missing) {
  for (;; pause()) {
    if (!is_current(sealed)) return false;
    const std::vector<std::size_t> late = missing();
    if (late.empty()) return true;
    const bool may_judge = pauses_.may_judge(Clock::now());
    if (is_any_lost(late, may_judge)) {
      open_another_round(sealed);
    } else if (may_judge && is_time_over()) {
      if (!wish_.leaves_out_late) throw Error(ErrorCode::timeout, late_in_words(late));
      for (const std::size_t rank : late) is_given_up_[rank] = true;
      open_another_round(sealed);
    }
  }
}

void SurvivorAgreement::fail(const ShrinkStage& stage, ErrorCode code, std::string_view reason) {
  ShrinkSlot& own = slot_of(self_);
  own.failed.store(0);
  own.failure.code = static_cast<std::uint32_t>(code);
  own.failure.length =
      static_cast<std::uint32_t>(reason.copy(own.failure.bytes.data(), own.failure.bytes.size()));
  own.failed.store(stage.attempt + 1);
  if (!decides()) {
    while (is_current(stage)) pause();  // they end it, or have found another outcome
    own.failed.store(0);
  } else if (!board_.advance(stage, {.attempt = stage.attempt + 1, .round = stage.round + 1})) {
    own.failed.store(0);
  }
}

Error SurvivorAgreement::failure() const {
  for (std::size_t each = 0; each < board_.slots.size(); ++each) {
    if (team_.messenger != nullptr && !team_.messenger->is_deciding(each)) continue;
    const ShrinkSlot& slot = slot_of(each);
    if (slot.failed.load() != attempt_ + 1) continue;
    const auto code = static_cast<ErrorCode>(slot.failure.code);
    constexpr std::string_view prefix = "Communicator: ";
    std::string text(slot.failure.text());
    if (slot.failed.load() != attempt_ + 1) continue;
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
    return {code, fmt::format("{}: {}", function(), text)};
  }
  return {ErrorCode::timeout, fmt::format("{}: the other ranks have given this attempt up", function())};
}

void SurvivorAgreement::leave(const ShrinkStage& stage) const {
  if (is_newcomer(self_)) throw NotNeeded{};
  const std::vector<std::size_t> survivors = survivors_of(stage);
  if (is_among(survivors) && slot_of(self_).made.load() == stage.round + 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} have gone on as another communicator already, expected a call of the one "
                            "that this has returned",
                            function(), in_words(survivors)));
  }
  throw Error(ErrorCode::timeout, fmt::format("{}: {} went on without rank {}, which came too late",
                                              function(), in_words(survivors), self_));
}

}  // namespace tutti::transport::team
