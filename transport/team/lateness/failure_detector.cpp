// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/failure_detector.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

FailureDetector::FailureDetector(const Membership& membership, const SharedState& state,
                                 const Progress& progress, std::span<const PeerProcess> processes,
                                 Settings settings)
    : membership_(membership),
      state_(state),
      progress_(progress),
      processes_(processes),
      settings_(std::move(settings)) {}

std::optional<std::chrono::milliseconds> FailureDetector::silence_since(std::int64_t time) const noexcept {
  const std::chrono::nanoseconds silence(RankStatus::now() - std::max(time, started_at_));
  if (silence < settings_.timeout / 2) return std::nullopt;
  return std::chrono::duration_cast<std::chrono::milliseconds>(silence);
}

std::optional<std::chrono::milliseconds> FailureDetector::standstill(std::size_t rank) const noexcept {
  const RankStatus& status = state_.status(rank);
  if (status.state.load() != RankStatus::active) return std::nullopt;
  return silence_since(std::max(status.watched_at.load(), status.gossip.watched_at.load()));
}

std::optional<std::chrono::milliseconds> FailureDetector::silence_of_proxy(std::size_t rank) const noexcept {
  const RankStatus& status = state_.status(rank);
  if (!membership_.spans_hosts() || status.state.load() != RankStatus::active || standstill(rank))
    return std::nullopt;
  if (membership_.is_on_this_host(rank)) return silence_since(status.carried_at.load());
  const std::int64_t heard_at = status.gossip.heard_at.load();
  const bool is_told_of = heard_at != 0 && !silence_since(heard_at);
  return is_told_of ? silence_since(status.gossip.carried_at.load()) : std::nullopt;
}

bool FailureDetector::is_heard(std::size_t rank) const noexcept {
  if (membership_.is_on_this_host(rank)) return true;
  const std::size_t receiver = membership_.receiver(rank, membership_.this_host());
  return !silence_since(state_.status(receiver).carried_at.load()) && !silence_of_proxy(rank);
}

bool FailureDetector::is_known(std::size_t rank) const noexcept {
  const std::int64_t heard_at = state_.status(rank).gossip.heard_at.load();
  return is_heard(rank) || (heard_at != 0 && !silence_since(heard_at));
}

std::uint64_t FailureDetector::last_call_of(std::size_t rank) const noexcept {
  const RankStatus& status = state_.status(rank);
  return std::max(status.last_sequence.load(), status.gossip.last_sequence.load());
}

std::optional<std::chrono::milliseconds> FailureDetector::limit_of(const RankWait& wait) const noexcept {
  const std::chrono::nanoseconds timeout = settings_.timeout;
  if (wait.lasted <= std::min(wait.patience, timeout)) return std::nullopt;
  const bool is_deaf =
      membership_.spans_hosts() && silence_since(state_.status(membership_.rank()).carried_at.load());
  const std::chrono::nanoseconds lasted = is_deaf ? wait.lasted - timeout / 4 : wait.lasted;
  if (lasted > wait.patience) return std::chrono::duration_cast<std::chrono::milliseconds>(wait.patience);
  if (lasted <= timeout) return std::nullopt;
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    // Between hosts, what it sent last, or should hand on, may be lost.
    if (gives_no_sign(rank) && (membership_.spans_hosts() || !is_through(rank, wait.sequence, *wait.missing)))
      return settings_.timeout;
  }
  return std::nullopt;
}

bool FailureDetector::stands_still(std::size_t rank) const noexcept {
  return is_too_long(standstill(rank));
}

bool FailureDetector::gives_no_sign(std::size_t rank) const noexcept {
  return stands_still(rank) || is_too_long(silence_of_proxy(rank));
}

bool FailureDetector::is_anyone_behind(const RankWait& wait) const noexcept {
  if (!wait.missing->empty()) return true;
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (last_call_of(rank) < wait.sequence || standstill(rank) || silence_of_proxy(rank)) return true;
  }
  return false;
}

bool FailureDetector::is_through(std::size_t rank, std::uint64_t sequence,
                                 const std::vector<std::size_t>& missing) const noexcept {
  if (last_call_of(rank) < sequence) return false;
  if (!missing.empty()) return !is_heard(rank) || std::ranges::find(missing, rank) == missing.end();
  return progress_.has_completed(rank, sequence) || state_.status(rank).gossip.completed.load() >= sequence;
}

std::string FailureDetector::how_far(std::size_t rank, std::uint64_t sequence,
                                     const std::vector<std::size_t>& missing) const {
  if (const std::uint64_t last = last_call_of(rank); last < sequence)
    return fmt::format("has not made it, its last call is {}", state_.last_in_words(rank, last));
  return is_through(rank, sequence, missing) ? "" : "has made it and not completed it";
}

std::string FailureDetector::who_is_late(std::uint64_t sequence,
                                         const std::vector<std::size_t>& missing) const {
  const std::size_t rank_count = membership_.rank_count();
  std::string late;
  const auto add = [&](const std::string& what) { late += (late.empty() ? "" : "; ") + what; };
  const auto what = [&](std::size_t rank) { return how_far(rank, sequence, missing); };
  const auto add_all = [&](const auto& is_meant) {
    if (!late.empty()) return;
    for (std::size_t rank = 0; rank < rank_count; ++rank) {
      if (is_known(rank) && is_meant(rank)) add(fmt::format("rank {} {}", rank, what(rank)));
    }
  };
  // A rank that waits for one that stands still is behind, too. Between hosts, what it sent last, or should
  // pass on, may be lost: it counts, even if it seems to have completed the call.
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    if (!is_known(rank)) continue;
    const auto silence = standstill(rank);
    const std::string lag = what(rank);
    if (!silence || (lag.empty() && !membership_.spans_hosts())) continue;
    add(fmt::format("rank {} {}, and its process has done nothing for {} ms", rank,
                    lag.empty() ? "has completed it" : lag, silence->count()));
  }
  add_all([&](std::size_t rank) { return last_call_of(rank) < sequence; });
  const bool is_explained = !late.empty();
  // Ranks that wait for what a host proxy should carry are not to blame: it may keep back anything.
  for (std::size_t rank = 0; rank < rank_count; ++rank) {
    if (const auto silence = silence_of_proxy(rank)) {
      add(fmt::format("the network thread of rank {} has not come back from {} for {} ms", rank,
                      settings_.network, silence->count()));
    }
  }
  for (std::size_t rank = 0; rank < rank_count && !is_explained; ++rank) {
    if (!is_known(rank))
      add(fmt::format("nothing is heard of rank {}, its last known call is {}", rank,
                      state_.last_in_words(rank, last_call_of(rank))));
  }
  const std::size_t self = membership_.rank();
  add_all([&](std::size_t rank) { return rank != self && !what(rank).empty(); });
  add_all([&](std::size_t rank) { return rank == self && !what(rank).empty(); });
  return late.empty() ? "it completes just now" : late;
}

}  // namespace tutti::transport::team
