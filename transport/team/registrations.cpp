// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations.hpp"

#include "backend/team_round.hpp"
#include "log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

/// The threads look without being told this often.
constexpr int looks_every_ms = 1000;
/// How often the closer tries while it has something to close, once others no longer wait for it, and while
/// there are captured calls.
constexpr std::chrono::microseconds tries_every{500};
constexpr std::chrono::milliseconds tries_later_every{5};
constexpr int tries_beside_captured_every_ms = 100;
/// After so many tries, half a second or more, others no longer wait for it.
constexpr int most_tries_in_time = 1000;
constexpr std::uintptr_t alignment = 16;

}  // namespace

Registrations::Registrations(Runtime& runtime, Team team)
    : runtime_(runtime), team_(std::move(team)), retired_(std::make_shared<RetiredSegments>(team_.tables)) {
  try {
    for (const int device : team_.own_devices) runtime_.allocator(device).add_observer(*this);
    if (team_.tables.boards.size() == 1) return;
    opener_ = start({.name = "tutti-opener", .purpose = "that opens memory of other ranks"},
                    &Registrations::open_loop);
    closer_ = start({.name = "tutti-closer", .purpose = "that closes memory of other ranks"},
                    &Registrations::close_loop);
  } catch (...) {
    stop_observing();
    close();
    throw;
  }
}

Registrations::~Registrations() {
  stop_observing();
  close();
}

void Registrations::stop_observing() noexcept {
  for (const int device : team_.own_devices) runtime_.allocator(device).remove_observer(*this);
}

Registrations::Segments::iterator Registrations::segment_of(const std::byte* address) {
  const auto next = segments_.upper_bound(address);
  if (next == segments_.begin()) return segments_.end();
  const auto found = std::prev(next);
  return address < found->first + found->second.bytes ? found : segments_.end();
}

bool Registrations::add(std::uint64_t sequence, std::size_t own_member, const std::byte* address,
                        bool is_captured) {
  const auto refuse = [this](std::string reason) {
    refusal_ = std::move(reason);
    return false;
  };
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    return refuse(fmt::format("it is not aligned to {} bytes", alignment));
  const int device = team_.own_devices[own_member];
  const std::lock_guard lock(mutex_);
  auto known = segment_of(address);
  if (known == segments_.end()) {
    const CachingAllocator::Extent extent = runtime_.allocator(device).segment_of(address);
    if (extent.address == nullptr) return refuse("it is not the caching allocator's");
    if (extent.bytes >= backend::SourcePlace::most_bytes)
      return refuse(fmt::format("its segment has {} bytes", extent.bytes));
    if (team_.tables.boards.size() == 1) return true;
    const std::optional<std::uint32_t> entry = free_entry();
    if (!entry) {
      return refuse(
          fmt::format("there are {} segments already that others have open or have not had the time to close",
                      team_.capacity));
    }
    try {
      enter(*entry, runtime_.backend().share_device_memory(device, extent.address));
    } catch (const Error& error) {
      log_warning(fmt::format("Communicator: {}", error.what()));
      return refuse(error.what());
    }
    known = segments_.emplace(extent.address, Segment{.bytes = extent.bytes, .entry = *entry}).first;
  }
  Segment& segment = known->second;
  segment.last_use = sequence;
  segment.is_kept |= is_captured;
  if (!segment.is_open) added_.push_back(known->first);
  return true;
}

void Registrations::enter(std::uint32_t entry, const backend::MemoryHandle& handle) {
  RegistrationBoard::Entry& shown = own().entries[entry];
  shown.handle = handle;
  ++shown.version;
  if (own().used.load() <= entry) own().used.store(entry + 1);
  ring_all();
}

std::optional<std::uint32_t> Registrations::free_entry() {
  for (std::uint32_t entry = 0; entry < team_.capacity; ++entry) {
    if (RegistrationBoard::is_open(own().entries[entry].version.load()) || !is_followed(entry)) continue;
    retired_->forget(entry);
    return entry;
  }
  return std::nullopt;
}

void Registrations::trim(std::uint64_t sequence) {
  while (segments_.size() > team_.capacity / 2) {
    auto oldest = segments_.end();
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
      if (segment->second.is_kept || segment->second.last_use == sequence) continue;
      if (oldest == segments_.end() || segment->second.last_use < oldest->second.last_use) oldest = segment;
    }
    if (oldest == segments_.end() || !team_.is_complete(oldest->second.last_use)) return;
    retire(oldest);
  }
}

void Registrations::retire(Segments::iterator segment) noexcept {
  std::erase(added_, segment->first);
  ++own().entries[segment->second.entry].version;
  retired_->add(segments_.extract(segment));
  ring_all();
}

void Registrations::ring_all() noexcept {
  for (std::size_t rank = 0; rank < team_.tables.registrations.size(); ++rank) {
    if (rank != team_.tables.rank) backend::ring(team_.tables.registrations[rank].bell);
  }
}

bool Registrations::is_followed(std::uint32_t entry) const noexcept {
  const bool is_open = RegistrationBoard::is_open(own().entries[entry].version.load());
  // Whoever leaves closes everything.
  return !team_.tables.any_behind(entry,
                                  [&](std::size_t rank) { return is_open || !team_.tables.has_left(rank); });
}

bool Registrations::closes_nothing(std::size_t rank) const {
  return team_.closes_nothing(rank) || team_.tables.registrations[rank].is_held_up.load();
}

bool Registrations::is_held_for_long(std::uint32_t entry) const {
  return team_.tables.any_behind(entry, [this](std::size_t rank) { return closes_nothing(rank); });
}

bool Registrations::stays_open() const {
  if (team_.is_over()) return false;
  for (std::size_t rank = 0; rank < team_.tables.registrations.size(); ++rank) {
    if (rank != team_.tables.rank && !team_.tables.has_left(rank) && closes_nothing(rank)) return true;
  }
  return false;
}

void Registrations::wait(std::uint64_t sequence) {
  std::vector<const std::byte*> added;
  {
    const std::lock_guard lock(mutex_);
    added = std::exchange(added_, {});
    if (!added.empty()) trim(sequence);
  }
  // What a call gives is in use, and stays where it is.
  for (const std::byte* const address : added) {
    Segment* segment = nullptr;
    {
      const std::lock_guard lock(mutex_);
      segment = &segments_.at(address);
    }
    if (segment->is_open) continue;
    team_.wait_for(sequence, [&] { return is_followed(segment->entry); });
    if (const std::string failure = failure_of(segment->entry); !failure.empty())
      throw Error(ErrorCode::transport_failure, failure);
    segment->is_open = true;
  }
}

std::string Registrations::failure_of(std::uint32_t entry) const {
  const RegistrationTables& tables = team_.tables;
  const std::span<const RegistrationView> views = tables.views_of(tables.rank, entry);
  for (std::size_t member = 0; member < views.size(); ++member) {
    if (tables.is_own(member) || views[member].address.load() != 0) continue;
    const std::size_t rank = tables.rank_of_member[member];
    return fmt::format("rank {} cannot open memory of rank {}: {}", rank, tables.rank,
                       tables.registrations[rank].failure.data());
  }
  return {};
}

Registrations::Given Registrations::find(std::byte* address) {
  const std::lock_guard lock(mutex_);
  Given given;
  given.address_ = address;
  if (const auto segment = segment_of(address); segment != segments_.end()) {
    given.registrations_ = this;
    given.views_ = team_.tables.views_of(team_.tables.rank, segment->second.entry).data();
    given.offset_ = static_cast<std::size_t>(address - segment->first);
  }
  return given;
}

std::byte* Registrations::Given::segment_of(std::size_t member) const noexcept {
  if (registrations_->team_.tables.is_own(member)) return address_ - offset_;
  return reinterpret_cast<std::byte*>(views_[member].address.load());
}

bool Registrations::keep_or_retire(const std::byte* address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto segment = segments_.find(address);
  if (segment == segments_.end()) return false;
  segment->second.is_kept = false;
  if (stays_open()) return true;
  retire(segment);
  return false;
}

void Registrations::will_free(const std::byte* address) noexcept {
  static_cast<void>(keep_or_retire(address));
}

SegmentObserver::Hold Registrations::hold_on(const std::byte* address) noexcept {
  if (keep_or_retire(address)) return Hold::lasting;
  return retired_->hold_on(
      address, [this](std::size_t rank) { return team_.tables.has_left(rank); },
      [this](std::uint32_t entry) { return team_.is_over() || is_held_for_long(entry); });
}

void Registrations::leave() noexcept {
  {
    const std::lock_guard lock(mutex_);
    while (!segments_.empty()) retire(segments_.begin());
  }
  close();
}

template <class Visitor>
void Registrations::for_each_case(const Visitor& visit) {
  for (std::size_t rank = 0; rank < team_.tables.registrations.size(); ++rank) {
    if (rank == team_.tables.rank) continue;
    const std::uint32_t used = team_.tables.registrations[rank].used.load();
    for (std::uint32_t entry = 0; entry < used; ++entry) {
      for (std::size_t own_member = 0; own_member < team_.own_devices.size(); ++own_member) {
        visit(Case{.rank = rank,
                   .entry = entry,
                   .own_member = own_member,
                   .version = team_.tables.registrations[rank].entries[entry].version.load(),
                   .view = team_.tables.views_of(rank, entry)[team_.first_own + own_member]});
      }
    }
  }
}

backend::Thread Registrations::start(const backend::Thread::Role& role, void (Registrations::*loop)()) {
  return backend::Thread(
      role, [this, loop] { run(loop); },
      [this](const backend::Escaped& escaped) {
        own().is_held_up.store(true);
        team_.fail(escaped);
      });
}

void Registrations::run(void (Registrations::*loop)()) {
  // A new thread's device is the first one, which need not be one of the team's.
  runtime_.backend().set_current_device(team_.own_devices.front());
  (this->*loop)();
}

void Registrations::open_loop() {
  while (!is_stopping_.load()) {
    const std::uint32_t seen = own().bell.value.load();
    for_each_case([this](const Case& segment) {
      const std::uint64_t followed = segment.view.version.load();
      if (!RegistrationBoard::is_open(followed) && followed != segment.version) open(segment);
    });
    if (!is_stopping_.load()) backend::wait_for_ring(own().bell, seen, looks_every_ms);
  }
}

void Registrations::open(const Case& segment) {
  if (!RegistrationBoard::is_open(segment.version)) return segment.view.version.store(segment.version);
  const RegistrationBoard::Entry& entry = team_.tables.registrations[segment.rank].entries[segment.entry];
  void* address = nullptr;
  try {
    void** opened = nullptr;  // what is open is known: its place comes first
    {
      const std::lock_guard lock(opened_mutex_);
      opened = &opened_[{segment.rank, std::size_t{segment.entry}, segment.own_member}];
    }
    *opened = runtime_.backend().open_device_memory(team_.own_devices[segment.own_member], entry.handle);
    address = *opened;
  } catch (...) {
    const std::string_view reason = backend::Escaped::current().what;
    std::array<char, 256>& failure = own().failure;
    failure[reason.copy(failure.data(), failure.size() - 1)] = '\0';
    log_warning(reason);
  }
  segment.view.address.store(reinterpret_cast<std::uintptr_t>(address));
  segment.view.version.store(segment.version);
  if (entry.version.load() != segment.version) backend::ring(own().bell);  // for the closer
}

void Registrations::close_loop() {
  const auto is_retired = [](const Case& segment) {
    const std::uint64_t followed = segment.view.version.load();
    return RegistrationBoard::is_open(followed) && followed != segment.version;
  };
  int tries = 0;
  while (!is_stopping_.load()) {
    const std::uint32_t seen = own().bell.value.load();
    bool has_work = false;
    for_each_case([&](const Case& segment) { has_work |= is_retired(segment); });
    // Of an ended team, own work may still read what nobody waits for: all is closed when it leaves.
    if (!has_work || team_.is_over()) {
      tries = 0;
      own().is_held_up.store(false);
      if (!is_stopping_.load()) backend::wait_for_ring(own().bell, seen, looks_every_ms);
      continue;
    }
    const Attempt attempt = team_.while_idle([&] {
      for_each_case([&](const Case& segment) {
        if (is_retired(segment)) close(segment);
      });
    });
    tries = attempt == Attempt::not_now ? std::min(tries + 1, most_tries_in_time + 1) : 0;
    const bool is_held_up = tries > most_tries_in_time || attempt == Attempt::not_soon;
    own().is_held_up.store(is_held_up);
    if (attempt == Attempt::not_now) {
      std::this_thread::sleep_for(is_held_up ? tries_later_every : tries_every);
    } else if (attempt == Attempt::not_soon && !is_stopping_.load()) {
      backend::wait_for_ring(own().bell, seen, tries_beside_captured_every_ms);
    }
  }
}

void Registrations::close(const Case& segment) {
  void* address = nullptr;
  {
    const std::lock_guard lock(opened_mutex_);
    const auto opened = opened_.find({segment.rank, std::size_t{segment.entry}, segment.own_member});
    if (opened != opened_.end()) {
      address = opened->second;
      opened_.erase(opened);
    }
  }
  if (address != nullptr)
    runtime_.backend().close_device_memory(team_.own_devices[segment.own_member], address);
  ++segment.view.version;
}

void Registrations::close() noexcept {
  is_stopping_.store(true);
  if (opener_.joinable()) backend::ring(own().bell);
  for (backend::Thread* const thread : {&opener_, &closer_}) thread->join();
  for (const auto& [key, address] : opened_) {
    if (address != nullptr) runtime_.backend().close_device_memory(team_.own_devices[key[2]], address);
  }
  opened_.clear();
}

}  // namespace tutti::transport::ranks
