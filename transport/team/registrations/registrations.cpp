// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/registrations.hpp"

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "backend/team_round.hpp"
#include "device/foreign_memory.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

constexpr std::uint64_t no_call = std::numeric_limits<std::uint64_t>::max();

bool is_inside(std::span<const std::byte> memory, const std::byte* segment, std::size_t bytes) noexcept {
  return memory.size() <= bytes && static_cast<std::size_t>(memory.data() - segment) <= bytes - memory.size();
}

/// Returns why memory that is neither tutti's nor registered cannot be exposed.
std::string reason_of_foreign(backend::Backend& backend, const std::byte* address) {
  std::string reason = reason_not_to_share(backend, address);
  return reason.empty() ? "it is neither tutti's nor registered (register_memory)" : reason;
}

/// Returns the devices of this process that may use memory of its members: all, if other ranks belong to it.
std::vector<int> devices_here(const Runtime& runtime, const Membership& membership) {
  if (!membership.shares_process_with_any()) return membership.devices();
  std::vector<int> devices(static_cast<std::size_t>(runtime.device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

}  // namespace

Registrations::Registrations(Runtime& runtime, const Membership& membership, const SharedState& state,
                             const Progress& progress, Waiting& waiting, CallLog& calls, Abort& abort,
                             LiveTeams& live_teams, std::size_t capacity, bool opens_foreign)
    : runtime_(runtime),
      membership_(membership),
      entries_(state.registration_tables(membership), calls, capacity),
      opens_foreign_(opens_foreign),
      progress_(progress),
      waiting_(waiting),
      calls_(calls),
      abort_(abort),
      retired_(std::make_shared<RetiredSegments>(entries_.tables())) {
  try {
    auto& allocators = runtime_.part<Allocators>();
    for (const int device : membership_.devices()) allocators.of(device).add_observer(*this);
    allocators.registered().add_observer(*this);
    if (membership_.rank_count() == 1) return;
    peers_.emplace(runtime, membership, entries_.tables(), calls, abort, live_teams);
  } catch (...) {
    stop_observing();
    throw;
  }
}

Registrations::~Registrations() {
  stop_observing();
}

void Registrations::stop_observing() noexcept {
  auto& allocators = runtime_.part<Allocators>();
  for (const int device : membership_.devices()) allocators.of(device).remove_observer(*this);
  allocators.registered().remove_observer(*this);
}

Registrations::Segments::iterator Registrations::segment_of(const std::byte* address) {
  const auto next = segments_.upper_bound(address);
  if (next == segments_.begin()) return segments_.end();
  const auto found = std::prev(next);
  return address < found->first + found->second.bytes ? found : segments_.end();
}

Registrations::Segments::iterator Registrations::refuse(std::string reason) {
  refusal_ = std::move(reason);
  return segments_.end();
}

std::optional<Registrations::Segments::iterator> Registrations::segment_for(
    std::size_t local, std::span<const std::byte> memory) {
  const std::byte* const address = memory.data();
  const std::uintptr_t alignment = alignment_of_exposed(runtime_.backend().kind());
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0)
    return refuse(fmt::format("it is not aligned to {} bytes", alignment));
  const auto known = segment_of(address);
  const bool is_known = known != segments_.end() && is_inside(memory, known->first, known->second.bytes);
  if (is_known && !known->second.is_block && is_current(known->second)) return known;
  const int device = membership_.devices()[local];
  const CachingAllocator::Extent extent = runtime_.part<Allocators>().memory_around(device, address);
  if (extent.address == nullptr) return foreign_segment_for(device, memory);
  if (!is_inside(memory, extent.address, extent.bytes))
    return refuse("only a part of it is registered (register_memory)");
  if (membership_.rank_count() == 1) return std::nullopt;
  // Of an expandable segment only the block as it is now: the rest of what was one before may be unmapped at
  // any time.
  if (is_known && known->first == extent.address && known->second.bytes == extent.bytes &&
      is_current(known->second))
    return known;
  set_aside({extent.address, extent.bytes}, extent.is_of_graphs);
  return enter(device, extent, Segment{.is_block = extent.is_block});
}

Registrations::Segments::iterator Registrations::enter(int device, const CachingAllocator::Extent& extent,
                                                       Segment segment) {
  if (extent.bytes >= backend::SourcePlace::most_bytes)
    return refuse(fmt::format("its segment has {} bytes", extent.bytes));
  retire_unused();
  if (extent.origin == backend::MemoryOrigin::block && is_foreign_open({extent.address, extent.bytes}))
    return refuse("others have not closed what was there before");  // the driver might not open two of them
  const std::span<const std::byte> memory(extent.address, extent.bytes);
  refused_.forget_unless(
      [this](const MemoryIdentities& identities) { return are_current(runtime_.backend(), identities); });
  const std::string* const reason = refused_.reason_of(memory);
  if (reason != nullptr && extent.origin != backend::MemoryOrigin::block) return refuse(*reason);
  const std::optional<std::uint32_t> entry = entries_.unused();
  // What may come with ever new bounds leaves entries to the segments of stand-ins.
  const bool is_foreign = !segment.identities.empty();
  const std::size_t most =
      entries_.capacity() - (segment.is_block || is_foreign ? entries_.capacity() / 8 : 0);
  if (!entry || *entry >= most) {
    return refuse(fmt::format("other ranks have {} segments open or not closed yet, and no more are possible",
                              entries_.capacity()));
  }
  retired_->forget(*entry);
  segment.bytes = extent.bytes;
  // Ranks of one process use the memory where it is.
  segment.is_pieces = extent.origin == backend::MemoryOrigin::piece && !membership_.is_in_one_process();
  segment.entry = *entry;
  try {
    open(*entry, device, extent, segment);
  } catch (const Error& error) {
    const bool is_new = refused_.add(memory, segment.identities, error.what());
    if (is_new && !is_foreign) log_warning(fmt::format("Communicator: {}", error.what()));
    return refuse(error.what());
  }
  return segments_.emplace(extent.address, std::move(segment)).first;
}

std::optional<Registrations::Segments::iterator> Registrations::foreign_segment_for(
    int device, std::span<const std::byte> memory) {
  backend::Backend& backend = runtime_.backend();
  auto* const address = const_cast<std::byte*>(memory.data());
  const std::optional<DeviceAllocation> found =
      opens_foreign_ ? allocation_around(backend, address, memory.size()) : std::nullopt;
  const bool may_be_opened =
      found && found->device == device && is_inside(memory, found->address, found->bytes) &&
      found->origin != backend::MemoryOrigin::pool && reason_not_to_share(backend, address).empty();
  if (!may_be_opened) return refuse(reason_of_foreign(backend, address));
  if (found->is_pieces() &&
      !runtime_.part<ForeignMemory>().is_open_to(devices_here(runtime_, membership_), memory))
    return refuse(std::string(closed_to_peers));
  if (membership_.rank_count() == 1) return std::nullopt;
  const CachingAllocator::Extent extent = join(*found);
  Segment segment{.identities = identities_of(backend, {extent.address, extent.bytes})};
  if (segment.identities.empty()) return refuse("the driver does not tell it from other memory");
  set_aside({extent.address, extent.bytes}, false);
  return enter(device, extent, std::move(segment));
}

bool Registrations::is_foreign_open(std::span<const std::byte> memory) {
  const auto is_foreign = [memory](const auto& segment) {
    return !segment.second.identities.empty() && overlaps(segment, memory);
  };
  return std::ranges::any_of(outdated_, is_foreign) ||
         retired_->any_open(is_foreign,
                            [this](std::size_t rank) { return entries_.tables().has_left(rank); });
}

CachingAllocator::Extent Registrations::join(const DeviceAllocation& found) {
  std::byte* begin = found.address;
  std::byte* end = found.address + found.bytes;
  for (const auto& segment : segments_) {
    if (!found.is_pieces() || segment.second.identities.empty()) continue;
    if (!overlaps(segment, {begin, end}) || !is_current(segment.second)) continue;
    auto* const first = const_cast<std::byte*>(segment.first);
    begin = std::min(begin, first);
    end = std::max(end, first + segment.second.bytes);
  }
  return {.address = begin, .bytes = static_cast<std::size_t>(end - begin), .origin = found.origin};
}

void Registrations::open(std::uint32_t entry, int device, const CachingAllocator::Extent& extent,
                         Segment& segment) {
  backend::Backend& backend = runtime_.backend();
  if (membership_.is_in_one_process()) return entries_.open(entry, {}, extent.address);
  if (extent.origin == backend::MemoryOrigin::block) {
    return entries_.open(entry, backend.share_device_memory(device, extent.address, Audience::anyone),
                         extent.address);
  }
  segment.pieces = backend.share_pieces(device, extent.address, extent.bytes, Audience::anyone);
  entries_.open(entry, segment.pieces->handle(), extent.address);
}

bool Registrations::add(std::uint64_t sequence, std::size_t local, std::span<const std::byte> memory,
                        bool is_captured) {
  const std::lock_guard lock(mutex_);
  const std::optional<Segments::iterator> found = segment_for(local, memory);
  if (!found) return true;
  if (*found == segments_.end()) return false;
  Segment& segment = (*found)->second;
  segment.last_use = sequence;
  segment.is_kept |= is_captured;
  if (!segment.is_open) added_.push_back((*found)->first);
  return true;
}

void Registrations::prepare_invitation(std::uint64_t batch, std::size_t local,
                                       std::span<const std::byte> memory) {
  const std::lock_guard lock(mutex_);
  const std::optional<Segments::iterator> found = segment_for(local, memory);
  if (!found || *found == segments_.end()) return;
  Segment& segment = (*found)->second;
  segment.last_use = std::max(segment.last_use, calls_.last());
  segment.last_batch = std::max(segment.last_batch, batch);
  segment.is_kept |= batch == 0;
  trim(no_call);
}

std::byte* Registrations::invite(bool is_captured, std::span<std::byte> memory, std::size_t sender,
                                 std::chrono::steady_clock::time_point deadline) {
  std::byte* const address = memory.data();
  std::span<RegistrationView> views;
  std::uint64_t version = 0;
  std::size_t offset = 0;
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = segment_of(address);
    if (found == segments_.end() || !is_inside(memory, found->first, found->second.bytes)) return nullptr;
    const std::uintptr_t alignment = alignment_of_exposed(runtime_.backend().kind());
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) return nullptr;
    waits = !std::exchange(found->second.was_awaited, true) || is_captured;
    views = entries_.views_of(found->second.entry);
    version = entries_.version_of(found->second.entry);
    offset = static_cast<std::size_t>(address - found->first);
  }
  const RegistrationTables& tables = entries_.tables();
  const RegistrationView& view = views[sender];
  const auto is_followed_by_sender = [&] { return view.version.load() == version; };
  while (waits && !is_followed_by_sender() && std::chrono::steady_clock::now() < deadline) {
    if (abort_.is_set() || tables.has_left(tables.rank_of_member[sender])) break;
    runtime_.backend().wait_elsewhere();  // others may wait for what this rank has queued
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const std::uint64_t segment = is_followed_by_sender() ? view.address.load() : 0;
  return segment == 0 ? nullptr : reinterpret_cast<std::byte*>(segment) + offset;
}

void Registrations::trim(std::uint64_t sequence) {
  while (segments_.size() > entries_.capacity() / 2) {
    auto oldest = segments_.end();
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
      if (segment->second.is_kept || segment->second.last_use == sequence) continue;
      if (segment->second.last_batch > progress_.completed_batches()) continue;
      if (oldest == segments_.end() || segment->second.last_use < oldest->second.last_use) oldest = segment;
    }
    if (oldest == segments_.end() || !progress_.has_completed(membership_.rank(), oldest->second.last_use))
      return;
    retire(oldest);
  }
}

void Registrations::retire(Segments::iterator segment) noexcept {
  std::erase(added_, segment->first);
  retire(segments_.extract(segment));
}

void Registrations::retire(Segments::node_type segment) noexcept {
  entries_.close(segment.mapped().entry);
  segment.mapped().pieces.reset();
  retired_->add(std::move(segment));
}

void Registrations::set_aside(std::span<const std::byte> memory, bool may_be_replayed) {
  auto segment = segments_.lower_bound(memory.data());
  if (segment != segments_.begin() && overlaps(*std::prev(segment), memory)) --segment;
  while (segment != segments_.end() && overlaps(*segment, memory)) {
    std::erase(added_, segment->first);
    const bool is_foreign = !segment->second.identities.empty();
    segment->second.is_kept &= is_foreign ? is_current(segment->second) : may_be_replayed;
    outdated_.insert(segments_.extract(segment++));
  }
}

template <class IsDue>
void Registrations::retire_outdated(const IsDue& is_due) noexcept {
  for (auto segment = outdated_.begin(); segment != outdated_.end();) {
    const auto next = std::next(segment);
    if (is_due(*segment)) retire(outdated_.extract(segment));
    segment = next;
  }
}

void Registrations::retire_unused() noexcept {
  retire_outdated(
      [this](const auto& segment) { return !segment.second.is_kept && !is_in_use(segment.second); });
}

SegmentObserver::Hold Registrations::will_unmap(std::span<const std::byte> memory) noexcept {
  {
    const std::lock_guard lock(mutex_);
    refused_.forget(memory);
    set_aside(memory, false);
    retire_outdated([memory](const auto& segment) { return overlaps(segment, memory); });
  }
  return retired_->hold_on(
      memory, [this](std::size_t rank) { return entries_.tables().has_left(rank); },
      [this](std::uint32_t entry) { return abort_.is_set() || entries_.is_held_for_long(entry); });
}

bool Registrations::stays_open() const {
  return !abort_.is_set() && entries_.would_be_held_for_long();
}

void Registrations::wait(std::uint64_t sequence) {
  std::vector<const std::byte*> added;
  {
    const std::lock_guard lock(mutex_);
    added = std::exchange(added_, {});
    if (!added.empty()) trim(sequence);
  }
  // Memory that a call exposes is in use, and stays where it is.
  for (const std::byte* const address : added) {
    const std::optional<std::uint32_t> entry = entry_to_open(address);
    if (!entry) continue;
    waiting_.wait_for(sequence, [&] { return entries_.is_followed(*entry); });
    if (const std::string failure = entries_.failure_of(*entry); !failure.empty())
      throw Error(ErrorCode::transport_failure, failure);
    note_open(address);
  }
}

std::optional<std::uint32_t> Registrations::entry_to_open(const std::byte* segment) {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(segment);
  if (found == segments_.end() || found->second.is_open) return std::nullopt;
  return found->second.entry;
}

void Registrations::note_open(const std::byte* segment) {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(segment);
  if (found == segments_.end()) return;
  found->second.is_open = true;
  found->second.pieces.reset();
}

Registrations::Exposed Registrations::find(std::byte* address) {
  const std::lock_guard lock(mutex_);
  Exposed exposed(address);
  if (const auto segment = segment_of(address); segment != segments_.end()) {
    exposed.registrations_ = this;
    exposed.views_ = entries_.views_of(segment->second.entry).data();
    exposed.offset_ = static_cast<std::size_t>(address - segment->first);
  }
  return exposed;
}

Registrations::Place Registrations::place_of(const std::byte* address) {
  const std::lock_guard lock(mutex_);
  const auto segment = segment_of(address);
  return {.entry = segment->second.entry, .offset = static_cast<std::uint64_t>(address - segment->first)};
}

std::byte* Registrations::opened(std::size_t rank, const Place& place, std::size_t local) const noexcept {
  const RegistrationView& view =
      entries_.tables().views_of(rank, place.entry)[membership_.first_local() + local];
  return reinterpret_cast<std::byte*>(view.address.load()) + place.offset;
}

std::byte* Registrations::Exposed::segment_of(std::size_t member) const noexcept {
  if (registrations_->membership_.is_local(member)) return address_ - offset_;
  return reinterpret_cast<std::byte*>(views_[member].address.load());
}

bool Registrations::keep_or_retire(const std::byte* address) noexcept {
  const std::lock_guard lock(mutex_);
  refused_.forget({address, 1});
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

bool Registrations::is_in_use(const Segment& segment) const noexcept {
  return segment.last_use > std::min(progress_.completed(), calls_.last_queued()) ||
         segment.last_batch > progress_.completed_batches();
}

SegmentObserver::Hold Registrations::hold_on(const std::byte* address) noexcept {
  return keep_or_retire(address) ? Hold::lasting : hold_of_retired(address);
}

SegmentObserver::Hold Registrations::let_go(const std::byte* address, bool insists) noexcept {
  {
    const std::lock_guard lock(mutex_);
    refused_.forget({address, 1});
    if (const auto segment = segments_.find(address); segment != segments_.end()) {
      if (!insists) {
        if (is_in_use(segment->second)) return abort_.is_set() ? Hold::lasting : Hold::passing;
        if (stays_open() && !segment->second.is_pieces) return Hold::lasting;
      }
      retire(segment);
    }
  }
  return hold_of_retired(address) == Hold::none ? Hold::none : Hold::lasting;
}

SegmentObserver::Hold Registrations::hold_of_retired(const std::byte* address) noexcept {
  return retired_->hold_on(
      address, [this](std::size_t rank) { return entries_.tables().has_left(rank); },
      [this](std::uint32_t entry) { return abort_.is_set() || entries_.is_held_for_long(entry); });
}

void Registrations::leave() noexcept {
  {
    const std::lock_guard lock(mutex_);
    while (!segments_.empty()) retire(segments_.begin());
    retire_outdated([](const auto&) { return true; });
  }
  peers_.reset();
}

}  // namespace tutti::transport::team
