// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/replays.hpp"

#include "settings/log.hpp"
#include "transport/team/lateness/late_warnings.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

Replays::Replays(const Membership& membership, const SharedState& state, const Progress& progress,
                 const FailureDetector& failure_detector, const FlightRecord& record, Waiting& waiting,
                 Abort& abort, const CallLog& calls)
    : membership_(membership),
      state_(state),
      progress_(progress),
      failure_detector_(failure_detector),
      record_(record),
      waiting_(waiting),
      abort_(abort),
      calls_(calls),
      locals_(membership.local_count()) {}

Replays::Place Replays::place_of(std::size_t member) const noexcept {
  const backend::TeamRecord& record = state_.record(member);
  Place place;
  std::uint64_t recorded = 0;
  for (const backend::TeamRecord::Call& call : record.calls) {
    const std::uint64_t first_round = call.first_round.load();
    if (first_round <= place.first_round) continue;
    place.first_round = first_round;
    recorded = call.number.load();
  }
  place.call = backend::TeamRecord::call_in(recorded);
  place.latest_round = record.latest_round.load();
  place.waits_in_replay = backend::TeamRecord::mark_in(recorded) != 0 && record.waits.load() != 0;
  return place;
}

bool Replays::are_under_way() const noexcept {
  return std::ranges::any_of(locals_, [](const LocalMember& local) { return local.place.waits_in_replay; });
}

void Replays::look_around(bool may_judge) {
  if (!progress_.expects_replays() || membership_.rank_count() == 1) return;
  compare();
  const std::int64_t now = RankStatus::now();
  for (std::size_t index = 0; index < locals_.size(); ++index) {
    LocalMember& local = locals_[index];
    const Place place = place_of(membership_.first_local() + index);
    if (place != local.place) {
      const bool has_waited = place.waits_in_replay || local.place.waits_in_replay;
      if (has_waited || place.latest_round != local.place.latest_round) moved_at_ = now;
      local = {.place = place, .since = now};
    }
  }
  const auto oldest =
      std::ranges::find_if(locals_, [](const LocalMember& local) { return local.place.waits_in_replay; });
  // Progress of any local member is progress: the others may wait for this one.
  if (oldest == locals_.end() || moved_at_ == now) note_that_it_goes_on();
  if (oldest == locals_.end() || abort_.is_set()) return;
  look_for_ranks_that_left(oldest->place);
  if (may_judge && !abort_.is_set())
    judge(oldest->place,
          std::chrono::nanoseconds(progress_.known_now() - std::max(oldest->since, moved_at_)));
}

std::optional<Replays::Difference> Replays::find_difference() const noexcept {
  for (std::size_t local = 0; local < membership_.local_count(); ++local) {
    const std::size_t member = membership_.first_local() + local;
    for (std::size_t other = 0; other < membership_.member_count(); ++other) {
      for (std::size_t i = 0; i < backend::TeamRecord::history; ++i) {
        const backend::TeamRecord::Call& mine = state_.record(member).calls[i];
        const backend::TeamRecord::Call& theirs = state_.record(other).calls[i];
        const std::uint64_t first_round = mine.first_round.load();
        const Difference difference{.member = member,
                                    .other = other,
                                    .first_round = first_round,
                                    .call = mine.number.load(),
                                    .other_call = theirs.number.load()};
        if (first_round != 0 && theirs.first_round.load() == first_round &&
            difference.call != difference.other_call)
          return difference;
      }
    }
  }
  return std::nullopt;
}

void Replays::compare() {
  const std::optional<Difference> found = find_difference();
  if (std::exchange(difference_, found) != found || !found) return;
  abort_.set(ErrorCode::invalid_argument,
             fmt::format("calls do not match: {}, {}", call_in_words(found->member, found->call),
                         call_in_words(found->other, found->other_call)));
}

std::string Replays::replay_in_words(std::uint64_t call) const {
  return fmt::format("a replay of {}", calls_.captured_in_words(call));
}

std::string Replays::call_in_words(std::size_t member, std::uint64_t recorded) const {
  const std::size_t rank = membership_.rank_of_member()[member];
  const std::uint64_t call = backend::TeamRecord::call_in(recorded);
  if (backend::TeamRecord::mark_in(recorded) != 0)
    return fmt::format("rank {} is in {}", rank, replay_in_words(call));
  return fmt::format("rank {} is in {}", rank, state_.status(rank).call_in_words(call));
}

std::vector<std::size_t> Replays::ranks_behind(const Place& place) const {
  std::vector<std::size_t> ranks;
  for (std::size_t member = 0; member < membership_.member_count(); ++member) {
    const std::size_t rank = membership_.rank_of_member()[member];
    if (rank == membership_.rank() || (!ranks.empty() && ranks.back() == rank)) continue;
    if (place_of(member).first_round < place.first_round) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<std::size_t> Replays::ranks_beside(const Place& place, bool that_wait) const {
  std::vector<std::size_t> ranks;
  for (std::size_t member = 0; member < membership_.member_count(); ++member) {
    const std::size_t rank = membership_.rank_of_member()[member];
    if (rank == membership_.rank() || (!ranks.empty() && ranks.back() == rank)) continue;
    const Place theirs = place_of(member);
    if (theirs.first_round == place.first_round && theirs.waits_in_replay == that_wait) ranks.push_back(rank);
  }
  return ranks;
}

std::vector<std::size_t> Replays::suspects(const Place& place) const {
  const std::vector<std::size_t> working = ranks_beside(place, false);
  const std::vector<std::size_t> waiting = ranks_beside(place, true);
  std::vector<std::size_t> still;
  const auto stands_still = [this](std::size_t rank) {
    return failure_detector_.standstill(rank).has_value();
  };
  std::ranges::copy_if(working, std::back_inserter(still), stands_still);
  const auto is_new = [&](std::size_t rank) { return std::ranges::find(working, rank) == working.end(); };
  std::ranges::copy_if(waiting, std::back_inserter(still),
                       [&](std::size_t rank) { return is_new(rank) && stands_still(rank); });
  if (!still.empty()) return still;
  std::vector<std::size_t> all = working;  // which may have completed it: the record does not say
  std::ranges::copy_if(waiting, std::back_inserter(all), is_new);
  return all;
}

void Replays::look_for_ranks_that_left(const Place& place) {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const RankStatus& gone = state_.status(rank);
    if (gone.state.load() < RankStatus::leaving) continue;
    // This is asked after it has left, when all that it has done is known.
    const std::vector<std::size_t> behind = ranks_behind(place);
    if (std::ranges::find(behind, rank) == behind.end()) continue;
    waiting_.look_for_lost_ranks();  // it may have left because of one
    abort_.set(ErrorCode::peer_unavailable,
               fmt::format("rank {} has left, its last call was {}; rank {} waits for it in {}", rank,
                           state_.last_in_words(rank), membership_.rank(), replay_in_words(place.call)));
    return;
  }
}

std::string Replays::who_is_late(const Place& place, const std::vector<std::size_t>& ranks,
                                 bool are_behind) const {
  const std::vector<std::size_t> waiting = ranks_beside(place, true);
  std::string late;
  for (const std::size_t rank : ranks) {
    const std::string lag =
        are_behind ? fmt::format("has not begun it, its last call is {}", state_.last_in_words(rank))
                   : std::string(std::ranges::find(waiting, rank) != waiting.end()
                                     ? "waits in it too"
                                     : "has begun it and does not wait in it");
    late += fmt::format("{}rank {} {}", late.empty() ? "" : "; ", rank, lag);
    if (const auto silence = failure_detector_.standstill(rank))
      late += fmt::format(", and its process has done nothing for {} ms", silence->count());
  }
  if (late.empty()) return fmt::format("rank {} alone has not completed it", membership_.rank());
  return late;
}

void Replays::judge(const Place& place, std::chrono::nanoseconds lasted) {
  const std::chrono::milliseconds patience = waiting_.patience().usual();
  const std::chrono::nanoseconds first = LateWarnings::first_after(patience);
  if (lasted < std::min<std::chrono::nanoseconds>(first, failure_detector_.timeout())) return;
  std::vector<std::size_t> missing = ranks_behind(place);
  const bool are_behind = !missing.empty();
  if (!are_behind) missing = suspects(place);
  const std::string late = who_is_late(place, missing, are_behind);
  if (missing.empty()) missing.push_back(membership_.rank());
  const auto limit = failure_detector_.limit_of(
      {.sequence = place.call, .lasted = lasted, .patience = patience, .missing = &missing});
  if (!limit) {
    if (lasted >= std::max(first, next_warning_) && tells_for_all(place)) warn(place, lasted, late);
    return;
  }
  const std::string reason =
      fmt::format("{} did not finish on rank {} within {} ms: {}", replay_in_words(place.call),
                  membership_.rank(), limit->count(), late);
  const std::string record = record_.of_timeout(calls_.last(), reason);  // as it is before all calls end
  if (abort_.set(ErrorCode::timeout, reason)) record_.keep(record);
}

bool Replays::tells_for_all(const Place& place) const {
  return std::ranges::none_of(ranks_beside(place, true), [this](std::size_t rank) {
    return rank < membership_.rank() && !failure_detector_.standstill(rank);
  });
}

void Replays::warn(const Place& place, std::chrono::nanoseconds lasted, const std::string& late) {
  next_warning_ = LateWarnings::growth * lasted;
  has_warned_ = true;
  log_warning(
      fmt::format("Communicator: rank {} has waited for {} ms in {}: {}; all ranks give up after {} ms",
                  membership_.rank(), whole_ms(lasted), replay_in_words(place.call), late,
                  waiting_.patience().usual().count()));
}

void Replays::note_that_it_goes_on() {
  next_warning_ = {};
  if (std::exchange(has_warned_, false))
    log_warning(fmt::format("Communicator: replays of rank {} go on", membership_.rank()));
}

}  // namespace tutti::transport::team
