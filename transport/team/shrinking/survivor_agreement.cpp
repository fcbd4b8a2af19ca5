// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"

#include "base/ranks_in_words.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

using Phase = ShrinkStage::Phase;
using Set = SurvivorBoard::Set;

std::string in_words(const std::vector<std::size_t>& ranks) {
  return ranks_in_words({ranks.begin(), ranks.end()});
}

std::string leaving_in_words(const std::vector<std::size_t>& ranks) {
  return ranks.empty() ? "nobody" : in_words(ranks);
}

}  // namespace

SurvivorAgreement::SurvivorAgreement(const SurvivorBoard& board, std::size_t self, ShrinkingTeam team,
                                     const ShrinkWish& wish)
    : board_(board),
      self_(self),
      team_(std::move(team)),
      wish_(wish),
      attempt_(board.current().attempt),
      is_given_up_(board.slots.size()),
      began_(Clock::now()),
      pauses_(team_.timeout) {
  board_.write(self_, Set::leaving, wish.leaving);
  board_.slots[self_].leaves_out_late.store(wish.leaves_out_late ? 1 : 0);
}

void SurvivorAgreement::run(const std::function<void(Exchange&)>& make,
                            const std::function<void()>& discard) {
  while (!make_together(seal(), make)) discard();
}

void SurvivorAgreement::pause() const {
  team_.wait_elsewhere();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

ShrinkStage SurvivorAgreement::current() const {
  const ShrinkStage stage = board_.current();
  if (stage.attempt != attempt_) throw Error(failure());
  return stage;
}

bool SurvivorAgreement::is_among(const std::vector<std::size_t>& ranks) const {
  return std::ranges::find(ranks, self_) != ranks.end();
}

bool SurvivorAgreement::is_any_lost(const std::vector<std::size_t>& ranks, bool may_judge) const {
  return std::ranges::any_of(ranks, [&](std::size_t rank) { return is_lost(rank, may_judge); });
}

void SurvivorAgreement::open_another_round(const ShrinkStage& from) const {
  static_cast<void>(board_.advance(from, {.attempt = from.attempt, .round = from.round + 1}));
}

ShrinkStage SurvivorAgreement::seal() {
  begin_to_wait();
  for (std::optional<std::uint32_t> round;; pause()) {
    const ShrinkStage stage = current();
    if (round != stage.round) begin_to_wait();
    round = stage.round;
    const bool may_judge = pauses_.may_judge(Clock::now());
    if (stage.phase == Phase::made) throw left_out(stage);
    if (stage.phase == Phase::open) {
      arrive(stage);
      propose(stage, may_judge);
    } else if (is_among(survivors_of(stage))) {
      if (is_current(stage)) return stage;
    } else {
      wait_without(stage, may_judge);
    }
  }
}

void SurvivorAgreement::arrive(const ShrinkStage& open) {
  board_.slots[self_].arrived.store(open.round + 1);
}

void SurvivorAgreement::propose(const ShrinkStage& open, bool may_judge) {
  std::vector<std::size_t> arrived;
  std::vector<std::size_t> missing;
  for (std::size_t rank = 0; rank < board_.slots.size(); ++rank) {
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
  compare_wishes(open, arrived);
  board_.write(self_, Set::proposed, arrived);
  static_cast<void>(board_.advance(open, {.attempt = open.attempt,
                                          .round = open.round,
                                          .phase = Phase::sealed,
                                          .proposer = static_cast<std::uint32_t>(self_)}));
}

std::string SurvivorAgreement::late_in_words(const std::vector<std::size_t>& missing) const {
  return fmt::format("{} did not come within {} ms, and nobody is left out who is late", in_words(missing),
                     wish_.timeout.count());
}

void SurvivorAgreement::compare_wishes(const ShrinkStage& open, const std::vector<std::size_t>& arrived) {
  for (const std::size_t rank : arrived) {
    if (const auto leaving = board_.read(rank, Set::leaving); leaving != wish_.leaving) {
      return fail(open, ErrorCode::invalid_argument,
                  fmt::format("options.leaving is {} on rank {} and {} on rank {}, expected the same",
                              leaving_in_words(wish_.leaving), self_, leaving_in_words(leaving), rank));
    }
    if ((board_.slots[rank].leaves_out_late.load() != 0) != wish_.leaves_out_late) {
      return fail(
          open, ErrorCode::invalid_argument,
          fmt::format("options.late differs between ranks {} and {}, expected the same", self_, rank));
    }
  }
}

void SurvivorAgreement::wait_without(const ShrinkStage& sealed, bool may_judge) {
  const std::vector<std::size_t> survivors = survivors_of(sealed);
  if (!is_current(sealed)) return;
  if (is_any_lost(survivors, may_judge)) return open_another_round(sealed);
  // They bound their waits themselves. If they open another round all the same, nobody waits for this rank.
  if (may_judge && Clock::now() - began_ > 2 * wish_.timeout) throw left_out(sealed);
}

bool SurvivorAgreement::make_together(const ShrinkStage& sealed, const std::function<void(Exchange&)>& make) {
  const std::vector<std::size_t> survivors = survivors_of(sealed);
  if (!is_current(sealed)) return false;
  // Whoever does not survive, and whatever still waits, learns that the team is over.
  team_.end(fmt::format("{} go on as another communicator", in_words(survivors)));
  begin_to_wait();
  SurvivorExchange exchange(*this, sealed, survivors);
  try {
    make(exchange);
  } catch (...) {
    give_up_making(sealed, survivors, backend::Escaped::current());
    return false;
  }
  return commit(sealed, survivors);
}

void SurvivorAgreement::give_up_making(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors,
                                       const backend::Escaped& escaped) {
  // A process that is being killed loses its memory before it is seen to be gone.
  constexpr std::chrono::milliseconds longest_death{200};
  for (const auto failed_at = Clock::now(); Clock::now() - failed_at < longest_death; pause()) {
    if (!is_current(sealed)) return;
    if (is_any_lost(survivors, pauses_.may_judge(Clock::now()))) return open_another_round(sealed);
  }
  fail(sealed, escaped.code, escaped.what);
}

bool SurvivorAgreement::commit(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors) {
  ShrinkStage made = sealed;
  made.phase = Phase::made;
  board_.slots[self_].made.store(sealed.round + 1);
  const auto missing = [&] {
    std::vector<std::size_t> ranks;
    std::ranges::copy_if(survivors, std::back_inserter(ranks), [&](std::size_t rank) {
      return board_.slots[rank].made.load() != sealed.round + 1;
    });
    return ranks;
  };
  try {
    if (wait_in(sealed, missing)) static_cast<void>(board_.advance(sealed, made));
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

void SurvivorAgreement::fail(const ShrinkStage& stage, ErrorCode code, std::string_view reason) const {
  ShrinkSlot& own = board_.slots[self_];
  own.failure.code = static_cast<std::uint32_t>(code);
  own.failure.length =
      static_cast<std::uint32_t>(reason.copy(own.failure.bytes.data(), own.failure.bytes.size()));
  own.failed.store(stage.attempt + 1);
  if (!board_.advance(stage, {.attempt = stage.attempt + 1, .round = stage.round + 1})) own.failed.store(0);
}

Error SurvivorAgreement::failure() const {
  for (const ShrinkSlot& slot : board_.slots) {
    if (slot.failed.load() != attempt_ + 1) continue;
    const auto code = static_cast<ErrorCode>(slot.failure.code);
    constexpr std::string_view prefix = "Communicator: ";
    std::string text(slot.failure.text());
    if (slot.failed.load() != attempt_ + 1) continue;
    if (text.starts_with(prefix)) text.erase(0, prefix.size());
    return {code, fmt::format("Communicator::shrink: {}", text)};
  }
  return {ErrorCode::timeout, "Communicator::shrink: the other ranks have given this attempt up"};
}

Error SurvivorAgreement::left_out(const ShrinkStage& made) const {
  const std::vector<std::size_t> survivors = survivors_of(made);
  if (is_among(survivors)) {
    return {ErrorCode::invalid_argument,
            fmt::format("Communicator::shrink: the communicator has been shrunk to {} already, expected a "
                        "call of the one that this has returned",
                        in_words(survivors))};
  }
  return {ErrorCode::timeout,
          fmt::format("Communicator::shrink: {} went on without rank {}, which came too late",
                      in_words(survivors), self_)};
}

}  // namespace tutti::transport::team
