#include "transport/ranks/registrations.hpp"

#include "backend/team_round.hpp"
#include "log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// The thread looks without being told this often.
constexpr int looks_every_ms = 1000;
constexpr std::uintptr_t alignment = 16;

bool is_open_version(std::uint64_t version) {
  return version % 2 == 1;
}

}  // namespace

Registrations::Registrations(Runtime& runtime, Team team) : runtime_(runtime), team_(std::move(team)) {
  try {
    for (const int device : team_.own_devices) runtime_.allocator(device).add_observer(*this);
    if (team_.boards.size() > 1) thread_ = std::thread([this] { serve(); });
  } catch (...) {
    stop_observing();
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
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) return false;
  const int device = team_.own_devices[own_member];
  std::unique_lock lock(mutex_);
  auto known = segment_of(address);
  if (known == segments_.end()) {
    const CachingAllocator::Extent extent = runtime_.allocator(device).segment_of(address);
    if (extent.address == nullptr || extent.bytes >= backend::SourcePlace::most_bytes) return false;
    if (team_.boards.size() == 1) return true;
    std::optional<std::uint32_t> entry = free_entry();
    while (!entry) {
      lock.unlock();
      if (!evict(sequence)) return false;
      lock.lock();
      entry = free_entry();
    }
    try {
      enter(*entry, runtime_.backend().share_device_memory(device, extent.address));
    } catch (const Error& error) {
      log_warning(fmt::format("Communicator: {}", error.what()));
      return false;
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
    if (is_open_version(own().entries[entry].version.load()) || !is_followed(entry)) continue;
    std::erase_if(retired_, [&](const auto& retired) { return retired.second == entry; });
    return entry;
  }
  return std::nullopt;
}

bool Registrations::evict(std::uint64_t sequence) {
  std::uint64_t last_use = sequence;
  bool is_room_coming = false;
  {
    const std::lock_guard lock(mutex_);
    is_room_coming = !retired_.empty();
    for (const auto& [address, segment] : segments_) {
      if (!segment.is_kept) last_use = std::min(last_use, segment.last_use);
    }
  }
  if (last_use == sequence && !is_room_coming) return false;
  if (last_use != sequence) {
    team_.wait_for(sequence, [&] { return team_.is_complete(last_use); });
    const std::lock_guard lock(mutex_);
    for (auto segment = segments_.begin(); segment != segments_.end(); ++segment) {
      if (segment->second.is_kept || segment->second.last_use != last_use) continue;
      retire(segment);
      break;
    }
  }
  team_.wait_for(sequence, [&] {
    const std::lock_guard lock(mutex_);
    return free_entry().has_value();
  });
  return true;
}

void Registrations::retire(Segments::iterator segment) {
  const std::uint32_t entry = segment->second.entry;
  std::erase(added_, segment->first);
  ++own().entries[entry].version;
  retired_.insert_or_assign(segment->first, entry);
  segments_.erase(segment);
  ring_all();
}

void Registrations::ring_all() noexcept {
  for (std::size_t rank = 0; rank < team_.registrations.size(); ++rank) {
    if (rank != team_.rank) backend::ring(team_.registrations[rank].bell);
  }
}

bool Registrations::is_followed(std::uint32_t entry) const noexcept {
  const std::uint64_t version = own().entries[entry].version.load();
  const std::span<const RegistrationView> views = views_of(team_.rank, entry);
  for (std::size_t member = 0; member < views.size(); ++member) {
    if (is_own(member) || views[member].version.load() == version) continue;
    // Whoever leaves closes everything.
    if (is_open_version(version) ||
        team_.boards[team_.rank_of_member[member]].state.load() < RankBoard::left) {
      return false;
    }
  }
  return true;
}

void Registrations::wait(std::uint64_t sequence) {
  std::vector<const std::byte*> added;
  {
    const std::lock_guard lock(mutex_);
    added = std::exchange(added_, {});
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
  const std::span<const RegistrationView> views = views_of(team_.rank, entry);
  for (std::size_t member = 0; member < views.size(); ++member) {
    if (is_own(member) || views[member].address.load() != 0) continue;
    const std::size_t rank = team_.rank_of_member[member];
    return fmt::format("rank {} cannot open memory of rank {}: {}", rank, team_.rank,
                       team_.registrations[rank].failure.data());
  }
  return {};
}

Registrations::Given Registrations::find(std::byte* address) {
  const std::lock_guard lock(mutex_);
  Given given;
  given.address_ = address;
  if (const auto segment = segment_of(address); segment != segments_.end()) {
    given.registrations_ = this;
    given.views_ = views_of(team_.rank, segment->second.entry).data();
    given.offset_ = static_cast<std::size_t>(address - segment->first);
  }
  return given;
}

std::byte* Registrations::Given::segment_of(std::size_t member) const noexcept {
  if (registrations_->is_own(member)) return address_ - offset_;
  return reinterpret_cast<std::byte*>(views_[member].address.load());
}

void Registrations::will_free(const std::byte* address) noexcept {
  const std::lock_guard lock(mutex_);
  if (const auto segment = segments_.find(address); segment != segments_.end()) retire(segment);
}

bool Registrations::may_free(const std::byte* address, Deadline deadline) noexcept {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      const auto retired = retired_.find(address);
      if (retired == retired_.end()) return true;
      // Afterwards others may still read what nobody waits for.
      if (team_.is_over()) return false;
      if (is_followed(retired->second)) {
        retired_.erase(retired);
        return true;
      }
    }
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void Registrations::serve() {
  RegistrationBoard& mine = own();
  // A new thread's device is the first one, which need not be one of the team's.
  runtime_.backend().set_current_device(team_.own_devices.front());
  while (!is_stopping_.load()) {
    const std::uint32_t seen = mine.bell.value.load();
    for (std::size_t rank = 0; rank < team_.registrations.size(); ++rank) {
      if (rank == team_.rank) continue;
      const std::uint32_t used = team_.registrations[rank].used.load();
      for (std::uint32_t entry = 0; entry < used; ++entry) follow(rank, entry);
    }
    if (!is_stopping_.load()) backend::wait_for_ring(mine.bell, seen, looks_every_ms);
  }
}

void Registrations::follow(std::size_t rank, std::uint32_t entry) {
  const RegistrationBoard::Entry& shown = team_.registrations[rank].entries[entry];
  const std::uint64_t version = shown.version.load();
  for (std::size_t own_member = 0; own_member < team_.own_devices.size(); ++own_member) {
    RegistrationView& view = views_of(rank, entry)[team_.first_own + own_member];
    if (view.version.load() == version) continue;
    const std::array key{rank, std::size_t{entry}, own_member};
    const int device = team_.own_devices[own_member];
    if (is_open_version(version)) {
      void* address = nullptr;
      try {
        address = runtime_.backend().open_device_memory(device, shown.handle);
        opened_[key] = address;
      } catch (const std::exception& error) {
        const std::string_view reason = error.what();
        std::array<char, 256>& failure = own().failure;
        failure[reason.copy(failure.data(), failure.size() - 1)] = '\0';
        log_warning(fmt::format("Communicator: {}", reason));
      }
      view.address.store(reinterpret_cast<std::uintptr_t>(address));
    } else if (const auto opened = opened_.find(key); opened != opened_.end()) {
      runtime_.backend().close_device_memory(device, opened->second);
      opened_.erase(opened);
    }
    view.version.store(version);
  }
}

void Registrations::close() noexcept {
  if (thread_.joinable()) {
    is_stopping_.store(true);
    backend::ring(own().bell);
    thread_.join();
  }
  for (const auto& [key, address] : opened_)
    runtime_.backend().close_device_memory(team_.own_devices[key[2]], address);
  opened_.clear();
}

}  // namespace tutti::transport::ranks
