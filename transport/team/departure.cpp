// SPDX-License-Identifier: Apache-2.0
#include "transport/team/departure.hpp"

#include "settings/log.hpp"
#include "transport/team/calls/live_teams.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

/// The longest wait for others that should come at once.
constexpr std::chrono::seconds longest_moment{1};

}  // namespace

Departure::Departure(Runtime& runtime, const Membership& membership, const SharedState& state,
                     const Progress& progress, const FailureDetector& failure_detector, const CallLog& calls,
                     const Abort& abort, LocalNews& news, std::vector<PeerProcess>& processes)
    : runtime_(runtime),
      membership_(membership),
      state_(state),
      progress_(progress),
      failure_detector_(failure_detector),
      calls_(calls),
      abort_(abort),
      news_(news),
      processes_(processes) {}

void Departure::enter(std::uint32_t state) noexcept {
  state_.status(membership_.rank()).state.store(state);
  news_.announce();
}

bool Departure::are_all(std::uint32_t state) const noexcept {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (state_.status(rank).state.load() < state && !processes_[rank].is_gone()) return false;
  }
  return true;
}

bool Departure::is_left_alone(std::size_t rank) const noexcept {
  // The thread that is here may be the one that lets it go on. What it still uses stays in any case.
  return membership_.shares_process(rank) && !membership_.spans_hosts();
}

bool Departure::have_others_left() const noexcept {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const bool has_left = state_.status(rank).state.load() >= RankStatus::left || processes_[rank].is_gone();
    if (!has_left && !is_left_alone(rank)) return false;
  }
  return true;
}

bool Departure::is_through(std::size_t rank) const noexcept {
  const std::uint64_t last = calls_.last();
  return state_.status(rank).last_sequence.load() >= last && progress_.has_completed(rank, last);
}

bool Departure::has_received(std::size_t rank) const noexcept {
  if (rank == membership_.rank()) return true;  // there are no messages
  const std::size_t first = membership_.first_member(rank);
  for (std::size_t to = first; to < first + membership_.member_count(rank); ++to) {
    for (std::size_t local = 0; local < membership_.local_count(); ++local) {
      const std::size_t from = membership_.first_local() + local;
      const std::uint64_t received = state_.link_log(from, to, SharedState::LinkEnd::receiver).received();
      if (received < state_.link_log(from, to, SharedState::LinkEnd::sender).made()) return false;
    }
  }
  return true;
}

bool Departure::is_anyone_late() const noexcept {
  if (calls_.has_captured()) return false;  // nobody knows when graphs run
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const bool goes_on = state_.status(rank).state.load() < RankStatus::leaving && !is_left_alone(rank) &&
                         !processes_[rank].is_gone() && !failure_detector_.gives_no_sign(rank);
    if (goes_on && !(is_through(rank) && has_received(rank))) return true;
  }
  return false;
}

bool Departure::needs_nothing(std::size_t rank) const noexcept {
  if (is_left_alone(rank)) return true;
  const RankStatus& status = state_.status(rank);
  if (status.state.load() >= RankStatus::leaving || processes_[rank].is_gone()) return true;
  // It need not come here: it may be about to leave another team first, where this rank comes later.
  return !calls_.has_captured() && status.last_sequence.load() == calls_.last() && is_through(rank) &&
         has_received(rank);
}

void Departure::leave(std::chrono::milliseconds patience, Windows& windows, Registrations* registrations,
                      const HostProxy* host_proxy) noexcept {
  using Clock = std::chrono::steady_clock;
  const auto wait_while = [&](const auto& holds, Clock::time_point deadline) {
    std::optional<Clock::time_point> soon;
    while (!has_successor_ && holds() && (host_proxy == nullptr || !host_proxy->is_broken())) {
      const auto now = Clock::now();
      // After an abort the others come soon, or not at all.
      if (abort_.is_set() && !soon) soon = now + longest_moment;
      if (now >= (soon ? std::min(*soon, deadline) : deadline)) return;
      runtime_.backend().wait_elsewhere();  // other communicators' work is needed, too
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  };
  const bool is_read = windows.transport() == TransportKind::p2p;  // this rank's device memory, by others
  const auto is_needed = [&] {
    if (host_proxy != nullptr) return !are_all(RankStatus::leaving);
    for (std::size_t rank = 0; is_read && rank < membership_.rank_count(); ++rank) {
      if (!needs_nothing(rank)) return true;
    }
    return false;
  };
  const auto is_still_open = [&] {
    if (host_proxy != nullptr) return !are_all(RankStatus::left) || !host_proxy->has_delivered();
    return is_read && !have_others_left();
  };
  enter(RankStatus::leaving);
  // A late rank may need what this rank passes on, or its memory: the timeout begins when nobody is late.
  if (patience > failure_detector_.timeout())
    wait_while([&] { return is_needed() && is_anyone_late(); }, Clock::now() + patience);
  const auto deadline = Clock::now() + failure_detector_.timeout();
  wait_while(is_needed, deadline);
  windows.close();
  if (registrations != nullptr) registrations->leave();
  enter(RankStatus::left);
  // Memory can be left behind, a host proxy cannot.
  wait_while(is_still_open,
             host_proxy != nullptr ? deadline : std::min(deadline, Clock::now() + longest_moment));
}

void Departure::prepare(const Windows& windows, const Registrations& registrations) {
  static_cast<void>(runtime_.part<DeferredFrees>());
  left_.push_back({.memory = std::make_shared<SharedMemory>(),
                   .statuses = state_.statuses(),
                   .processes = {},
                   .segments = registrations.retired(),
                   .windows = windows.allocated()});
}

void Departure::defer_frees(HostShare& shared, Windows& windows,
                            std::optional<Registrations>& registrations) noexcept {
  std::shared_ptr<SharedMemory> memory;  // until nobody else here looks at it
  auto& deferred = runtime_.part<DeferredFrees>();
  if (!left_.empty() && !are_all(RankStatus::left)) {
    memory = left_.front().memory;
    *memory = shared.release();
    left_.front().processes = std::move(processes_);
    deferred.take(std::move(left_), windows.release(), windows.layout().bytes());
  }
  registrations.reset();
  deferred.sweep(membership_.devices());
  if (!membership_.shares_process_with_any()) return;
  // Ranks of this process that left before have waited for nobody: perhaps this was the last one.
  for (int device = 0; device < runtime_.device_count(); ++device) free_deferred(runtime_, {&device, 1});
}

void free_deferred(Runtime& runtime, std::span<const int> devices) noexcept {
  try {
    auto& live_teams = runtime.part<LiveTeams>();
    live_teams.while_idle(nullptr, [&] { runtime.part<DeferredFrees>().sweep(devices); });
  } catch (const std::exception& error) {
    log_warning(fmt::format("Communicator: memory of earlier ones is not freed now: {}", error.what()));
  }
}

}  // namespace tutti::transport::team
