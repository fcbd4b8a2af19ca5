// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/waiting.hpp"

#include "transport/team/lateness/suspension_detector.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include <fmt/format.h>

namespace tutti::transport::team {

Waiting::Waiting(Runtime& runtime, const Membership& membership, const SharedState& state,
                 const Progress& progress, const FailureDetector& failure_detector,
                 const FlightRecord& record, Abort& abort, std::chrono::milliseconds patience)
    : runtime_(runtime),
      membership_(membership),
      state_(state),
      progress_(progress),
      failure_detector_(failure_detector),
      record_(record),
      abort_(abort),
      patience_(patience),
      warnings_(membership, state, progress, failure_detector) {}

void Waiting::wait(std::uint64_t sequence, const std::function<bool()>& holds,
                   const std::vector<std::size_t>& missing, std::optional<std::chrono::milliseconds> limit) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  RankWait wait{.sequence = sequence,
                .lasted = {},
                .patience = limit.value_or(patience_.of(sequence)),
                .missing = &missing};
  const auto told_after = LateWarnings::first_after(wait.patience);
  SuspensionDetector pauses(failure_detector_.timeout());
  while (!holds()) {
    abort_.require_running();
    const auto now = Clock::now();
    wait.lasted = now - start;
    if (pauses.may_judge(now)) {
      // The watch tells of calls that are under way.
      if (wait.lasted >= told_after && !progress_.oldest_under_way()) warnings_.look(wait);
      judge(wait);
    }
    runtime_.backend().wait_elsewhere();  // others may wait for what this rank has queued
    if (wait.lasted > std::chrono::microseconds(50)) {
      waits_in_.store(sequence);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    } else {
      std::this_thread::yield();
    }
  }
  waits_in_.store(0);
  if (wait.lasted >= told_after) warnings_.goes_on(sequence);
}

void Waiting::wait_for_ranks(std::uint64_t sequence, const Missing& missing,
                             std::optional<std::chrono::milliseconds> limit) {
  std::vector<std::size_t> late;
  const auto nobody_is_missing = [&] {
    late = missing();
    if (!late.empty()) look_for_ranks_that_left(sequence, missing);
    return late.empty();
  };
  wait(sequence, std::ref(nobody_is_missing), late, limit);  // no memory is taken
}

void Waiting::look_at_call(std::uint64_t sequence, std::chrono::nanoseconds waited) {
  const std::vector<std::size_t> unknown;
  const RankWait wait{
      .sequence = sequence, .lasted = waited, .patience = patience_.of(sequence), .missing = &unknown};
  warnings_.look(wait);
  judge(wait);
}

void Waiting::judge(const RankWait& wait) {
  const auto limit = failure_detector_.limit_of(wait);
  if (!limit) return;
  const std::string reason =
      fmt::format("{} did not finish within {} ms: {}", status().call_in_words(wait.sequence), limit->count(),
                  failure_detector_.who_is_late(wait.sequence, *wait.missing));
  const std::string record = record_.of_timeout(wait.sequence, reason);  // as it is before all calls end
  if (abort_.set(ErrorCode::timeout, reason)) record_.keep(record);
}

void Waiting::look_for_lost_ranks() {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const RankStatus& lost = state_.status(rank);
    if (!failure_detector_.is_gone(rank) || lost.state.load() >= RankStatus::leaving) continue;
    const std::uint64_t waits_in = progress_.oldest_under_way().value_or(waits_in_.load());
    const std::string wait = waits_in == 0 ? ""
                                           : fmt::format("; rank {} waits in {}", membership_.rank(),
                                                         status().call_in_words(waits_in));
    abort_.set(ErrorCode::peer_unavailable,
               fmt::format("rank {} (process {}) is gone; its last call was {}{}", rank, lost.process,
                           state_.last_in_words(rank), wait));
    return;
  }
}

void Waiting::look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing) {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const RankStatus& gone = state_.status(rank);
    if (gone.state.load() < RankStatus::leaving) continue;
    const std::vector<std::size_t> ranks = missing();  // asked when it has left: what it has done is done
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    look_for_lost_ranks();  // it may have left because of one
    abort_.set(ErrorCode::peer_unavailable,
               fmt::format("rank {} has left, its last call was {}; rank {} waits for it in {}", rank,
                           state_.last_in_words(rank), membership_.rank(), status().call_in_words(sequence)));
    return;
  }
}

}  // namespace tutti::transport::team
