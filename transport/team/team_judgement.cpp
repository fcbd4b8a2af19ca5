// SPDX-License-Identifier: Apache-2.0
#include "transport/team/team.hpp"

#include <algorithm>
#include <chrono>
#include <string>

#include <fmt/format.h>

/// Who is late, as far as a rank can tell: it judges others by what it hears of them, and asks first whether
/// it can hear them at all.
namespace tutti::transport::ranks {

std::string Team::call_of(const RankBoard& of, std::uint64_t sequence) const {
  if (sequence == 0) return "nothing yet";
  const RankBoard::Entry& entry = of.entries[sequence % RankBoard::history];
  const std::string what = entry.is(sequence) ? to_string(entry.signature()) : "a call";
  return fmt::format("{} (#{})", what, sequence);
}

std::optional<std::chrono::milliseconds> Team::silence_since(std::int64_t time) const noexcept {
  const std::chrono::nanoseconds silence(RankBoard::now() - std::max(time, started_at_));
  if (silence < settings_.timeout / 2) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(silence);
}

std::optional<std::chrono::milliseconds> Team::standstill(std::size_t rank) const noexcept {
  if (board(rank).state.load() != RankBoard::active) return std::nullopt;
  return silence_since(std::max(board(rank).watched_at.load(), board(rank).hearsay.watched_at.load()));
}

std::optional<std::chrono::milliseconds> Team::silence_of_courier(std::size_t rank) const noexcept {
  const RankBoard& of = board(rank);
  if (!spans_hosts() || of.state.load() != RankBoard::active || standstill(rank)) return std::nullopt;
  if (is_here(rank)) return silence_since(of.carried_at.load());
  const bool is_told_of = of.hearsay.heard_at.load() != 0 && !silence_since(of.hearsay.heard_at.load());
  return is_told_of ? silence_since(of.hearsay.carried_at.load()) : std::nullopt;
}

bool Team::is_heard(std::size_t rank) const noexcept {
  if (is_here(rank)) return true;
  const std::size_t carrier = this->carrier(rank, host_of(static_cast<std::size_t>(rank_)));
  return !silence_since(board(carrier).carried_at.load()) && !silence_of_courier(rank);
}

bool Team::is_known(std::size_t rank) const noexcept {
  const std::int64_t heard_at = board(rank).hearsay.heard_at.load();
  return is_heard(rank) || (heard_at != 0 && !silence_since(heard_at));
}

std::uint64_t Team::last_call_of(std::size_t rank) const noexcept {
  return std::max(board(rank).last_sequence.load(), board(rank).hearsay.last_sequence.load());
}

std::chrono::nanoseconds Team::patience() const noexcept {
  const bool is_deaf = spans_hosts() && silence_since(own().carried_at.load());
  return is_deaf ? settings_.timeout + settings_.timeout / 4 : settings_.timeout;
}

std::vector<std::size_t> Team::behind(std::uint64_t sequence) const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (board(rank).last_sequence.load() < sequence) ranks.push_back(rank);
  }
  return ranks;
}

std::string Team::who_is_late(std::uint64_t sequence, const std::vector<std::size_t>& missing) const {
  std::string late;
  const auto add = [&](const std::string& what) { late += (late.empty() ? "" : "; ") + what; };
  const auto self = static_cast<std::size_t>(rank_);
  const auto what = [&](std::size_t rank) -> std::string {
    const std::uint64_t last = last_call_of(rank);
    if (last < sequence)
      return fmt::format("has not made it, its last call is {}", call_of(board(rank), last));
    const bool is_over =
        missing.empty()
            ? has_completed(board(rank), sequence) || board(rank).hearsay.completed.load() >= sequence
            : !is_heard(rank) || std::ranges::find(missing, rank) == missing.end();
    return is_over ? "" : "has made it and not completed it";
  };
  const auto add_all = [&](const auto& is_meant) {
    if (!late.empty()) return;
    for (std::size_t rank = 0; rank < rank_count_; ++rank) {
      if (is_known(rank) && is_meant(rank)) add(fmt::format("rank {} {}", rank, what(rank)));
    }
  };
  // Whoever waits for one that stands still is behind, too. Between hosts, what it sent last, or should hand
  // on, may be lost: it counts, even if it seems to have completed the call.
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (!is_known(rank)) continue;
    const auto silence = standstill(rank);
    const std::string how_far = what(rank);
    if (!silence || (how_far.empty() && !spans_hosts())) continue;
    add(fmt::format("rank {} {}, and its process has done nothing for {} ms", rank,
                    how_far.empty() ? "has completed it" : how_far, silence->count()));
  }
  add_all([&](std::size_t rank) { return last_call_of(rank) < sequence; });
  const bool is_explained = !late.empty();
  // Those who wait for what a courier should carry are innocent. What it keeps back may be anything.
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (const auto silence = silence_of_courier(rank)) {
      add(fmt::format("the network thread of rank {} has not come back from {} for {} ms", rank,
                      courier_->network().name(), silence->count()));
    }
  }
  for (std::size_t rank = 0; rank < rank_count_ && !is_explained; ++rank) {
    if (!is_known(rank))
      add(fmt::format("nothing is heard of rank {}, its last known call is {}", rank,
                      call_of(board(rank), last_call_of(rank))));
  }
  add_all([&](std::size_t rank) { return rank != self && !what(rank).empty(); });
  add_all([&](std::size_t rank) { return rank == self && !what(rank).empty(); });
  return late.empty() ? "it completes just now" : late;
}

void Team::give_up(std::uint64_t sequence, const std::vector<std::size_t>& missing) {
  const std::string reason = fmt::format("{} did not finish within {} ms: {}", call_of(own(), sequence),
                                         settings_.timeout.count(), who_is_late(sequence, missing));
  const std::string record = record_of_timeout(sequence, reason);  // as it is before all calls end
  if (abort(ErrorCode::timeout, reason)) keep_record(record);
}

}  // namespace tutti::transport::ranks
