// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/registration_entries.hpp"

#include "os/shared_flag.hpp"

#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

RegistrationEntries::RegistrationEntries(RegistrationTables tables, const CallLog& calls,
                                         std::size_t capacity)
    : tables_(std::move(tables)), calls_(calls), capacity_(capacity) {}

std::optional<std::uint32_t> RegistrationEntries::unused() const noexcept {
  for (std::uint32_t entry = 0; entry < capacity_; ++entry) {
    if (!RegistrationTable::is_open(version_of(entry)) && is_followed(entry)) return entry;
  }
  return std::nullopt;
}

void RegistrationEntries::open(std::uint32_t entry, const backend::MemoryHandle& handle,
                               const std::byte* address) noexcept {
  RegistrationTable& table = tables_.own();
  table.entries[entry].handle = handle;
  const std::uint64_t version = ++table.entries[entry].version;
  const std::span<RegistrationView> views = views_of(entry);
  for (std::size_t member = 0; member < views.size(); ++member) {
    if (!tables_.shares_process[tables_.rank_of_member[member]]) continue;
    views[member].address.store(reinterpret_cast<std::uintptr_t>(address));
    views[member].version.store(version);
  }
  if (table.used.load() <= entry) table.used.store(entry + 1);
  ring_all();
}

void RegistrationEntries::close(std::uint32_t entry) noexcept {
  ++tables_.own().entries[entry].version;
  ring_all();
}

void RegistrationEntries::ring_all() noexcept {
  for (std::size_t rank = 0; rank < tables_.registrations.size(); ++rank) {
    if (rank != tables_.rank) backend::ring(tables_.registrations[rank].bell);
  }
}

bool RegistrationEntries::is_followed(std::uint32_t entry) const noexcept {
  const bool is_open = RegistrationTable::is_open(version_of(entry));
  // A rank that leaves closes everything.
  return !tables_.any_behind(entry, [&](std::size_t rank) { return is_open || !tables_.has_left(rank); });
}

std::string RegistrationEntries::failure_of(std::uint32_t entry) const {
  const std::span<const RegistrationView> views = views_of(entry);
  for (std::size_t member = 0; member < views.size(); ++member) {
    if (tables_.is_local(member) || views[member].address.load() != 0) continue;
    const std::size_t rank = tables_.rank_of_member[member];
    return fmt::format("rank {} cannot open memory of rank {}: {}", rank, tables_.rank,
                       tables_.registrations[rank].failure.data());
  }
  return {};
}

bool RegistrationEntries::closes_nothing(std::size_t rank) const noexcept {
  return calls_.closes_nothing(rank) || tables_.registrations[rank].is_held_up.load();
}

bool RegistrationEntries::is_held_for_long(std::uint32_t entry) const noexcept {
  return tables_.any_behind(entry, [this](std::size_t rank) { return closes_nothing(rank); });
}

bool RegistrationEntries::would_be_held_for_long() const noexcept {
  for (std::size_t rank = 0; rank < tables_.registrations.size(); ++rank) {
    if (rank != tables_.rank && !tables_.has_left(rank) && closes_nothing(rank)) return true;
  }
  return false;
}

}  // namespace tutti::transport::team
