// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/peer_segments.hpp"

#include "settings/log.hpp"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <thread>

namespace tutti::transport::team {
namespace {

/// The threads look without being told this often.
constexpr int looks_every_ms = 1000;
/// The intervals at which the closer tries while it has something to close, once others no longer wait for
/// it, and while there are captured calls.
constexpr std::chrono::microseconds tries_every{500};
constexpr std::chrono::milliseconds tries_later_every{5};
constexpr int tries_beside_captured_every_ms = 100;
/// After so many tries, half a second or more, others no longer wait for it.
constexpr int most_tries_in_time = 1000;

}  // namespace

PeerSegments::PeerSegments(Runtime& runtime, const Membership& membership, RegistrationTables tables,
                           CallLog& calls, Abort& abort, LiveTeams& live_teams)
    : runtime_(runtime),
      membership_(membership),
      tables_(std::move(tables)),
      calls_(calls),
      abort_(abort),
      live_teams_(live_teams) {
  try {
    opener_ = start({.name = "tutti-opener", .purpose = "that opens memory of other ranks"},
                    &PeerSegments::open_loop);
    closer_ = start({.name = "tutti-closer", .purpose = "that closes memory of other ranks"},
                    &PeerSegments::close_loop);
  } catch (...) {
    stop();
    throw;
  }
}

PeerSegments::~PeerSegments() {
  stop();
}

template <class Visitor>
void PeerSegments::for_each_case(const Visitor& visit) {
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (rank == membership_.rank()) continue;
    const std::uint32_t used = tables_.registrations[rank].used.load();
    for (std::uint32_t entry = 0; entry < used; ++entry) {
      for (std::size_t local = 0; local < membership_.devices().size(); ++local) {
        visit(Case{.rank = rank,
                   .entry = entry,
                   .local = local,
                   .version = tables_.registrations[rank].entries[entry].version.load(),
                   .view = tables_.views_of(rank, entry)[membership_.first_local() + local]});
      }
    }
  }
}

backend::Thread PeerSegments::start(const backend::Thread::Role& role, void (PeerSegments::*loop)()) {
  return backend::Thread(
      role, [this, loop] { run(loop); },
      [this](const backend::Escaped& escaped) {
        table().is_held_up.store(true);
        abort_.fail("cannot open or close memory", escaped);
      });
}

void PeerSegments::run(void (PeerSegments::*loop)()) {
  // A new thread's device is the first one, which need not be one of the team's.
  runtime_.backend().set_current_device(membership_.devices().front());
  (this->*loop)();
}

void PeerSegments::open_loop() {
  while (!is_stopping_.load()) {
    const std::uint32_t seen = table().bell.value.load();
    for_each_case([this](const Case& segment) {
      const std::uint64_t followed = segment.view.version.load();
      if (!is_own(segment) && !RegistrationTable::is_open(followed) && followed != segment.version)
        open(segment);
    });
    if (!is_stopping_.load()) backend::wait_for_ring(table().bell, seen, looks_every_ms);
  }
}

void PeerSegments::open(const Case& segment) {
  if (!RegistrationTable::is_open(segment.version)) return segment.view.version.store(segment.version);
  const RegistrationTable::Entry& entry = tables_.registrations[segment.rank].entries[segment.entry];
  void* address = nullptr;
  try {
    void** opened = nullptr;  // what is open is known: its place comes first
    {
      const std::lock_guard lock(opened_mutex_);
      opened = &opened_[{segment.rank, std::size_t{segment.entry}, segment.local}];
    }
    *opened = runtime_.backend().open_device_memory(membership_.devices()[segment.local], entry.handle);
    address = *opened;
  } catch (...) {
    const std::string_view reason = backend::Escaped::current().what;
    std::array<char, 256>& failure = table().failure;
    failure[reason.copy(failure.data(), failure.size() - 1)] = '\0';
    // What its owner has given up meanwhile, nobody waits for.
    if (entry.version.load() == segment.version) log_warning(reason);
  }
  segment.view.address.store(reinterpret_cast<std::uintptr_t>(address));
  segment.view.version.store(segment.version);
  if (entry.version.load() != segment.version) backend::ring(table().bell);  // for the closer
}

bool PeerSegments::is_retired(const Case& segment) const noexcept {
  // In this order: the entry is never behind what has followed it.
  const std::uint64_t followed = segment.view.version.load();
  return RegistrationTable::is_open(followed) &&
         followed != tables_.registrations[segment.rank].entries[segment.entry].version.load();
}

Attempt PeerSegments::close_own() {
  if (calls_.may_wait_any_time()) return Attempt::not_soon;
  if (!calls_.is_idle()) return Attempt::not_now;
  const auto held = calls_.hold_if_idle();
  if (!held.owns_lock()) return Attempt::not_now;
  for_each_case([this](const Case& segment) {
    if (is_own(segment) && is_retired(segment)) close(segment);
  });
  return Attempt::done;
}

Attempt PeerSegments::close_retired(bool has_others, bool has_own) {
  const Attempt own = has_own ? close_own() : Attempt::done;
  if (!has_others) return own;
  return std::max(own, live_teams_.while_idle(&calls_, [this] {
    for_each_case([this](const Case& segment) {
      if (!is_own(segment) && is_retired(segment)) close(segment);
    });
  }));
}

void PeerSegments::close_loop() {
  int tries = 0;
  while (!is_stopping_.load()) {
    const std::uint32_t seen = table().bell.value.load();
    bool has_others = false;
    bool has_own = false;
    for_each_case([&](const Case& segment) {
      if (is_retired(segment)) (is_own(segment) ? has_own : has_others) = true;
    });
    // In an ended team, local work may still use segments that nobody waits for: all are closed when it
    // leaves.
    if (!(has_others || has_own) || abort_.is_set()) {
      tries = 0;
      table().is_held_up.store(false);
      if (!is_stopping_.load()) backend::wait_for_ring(table().bell, seen, looks_every_ms);
      continue;
    }
    const Attempt attempt = close_retired(has_others, has_own);
    tries = attempt == Attempt::not_now ? std::min(tries + 1, most_tries_in_time + 1) : 0;
    const bool is_held_up = tries > most_tries_in_time || attempt == Attempt::not_soon;
    table().is_held_up.store(is_held_up);
    if (attempt == Attempt::not_now) {
      std::this_thread::sleep_for(is_held_up ? tries_later_every : tries_every);
    } else if (attempt == Attempt::not_soon && !is_stopping_.load()) {
      backend::wait_for_ring(table().bell, seen, tries_beside_captured_every_ms);
    }
  }
}

void PeerSegments::close(const Case& segment) {
  void* address = nullptr;
  {
    const std::lock_guard lock(opened_mutex_);
    const auto opened = opened_.find({segment.rank, std::size_t{segment.entry}, segment.local});
    if (opened != opened_.end()) {
      address = opened->second;
      opened_.erase(opened);
    }
  }
  if (address != nullptr)
    runtime_.backend().close_device_memory(membership_.devices()[segment.local], address);
  ++segment.view.version;
}

void PeerSegments::stop() noexcept {
  is_stopping_.store(true);
  if (opener_.joinable()) backend::ring(table().bell);
  for (backend::Thread* const thread : {&opener_, &closer_}) thread->join();
  for (const auto& [key, address] : opened_) {
    if (address != nullptr) runtime_.backend().close_device_memory(membership_.devices()[key[2]], address);
  }
  opened_.clear();
}

}  // namespace tutti::transport::team
