// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/shared/registration_tables.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti::transport::team {

/// The entries of this rank's table: they tell the others which of its segments to have open. Here stands
/// what they say, and what the others have made of it.
///
/// One thread at a time calls `unused`, `open` and `close`; any may ask the rest.
class RegistrationEntries {
 public:
  /// `capacity`: how many of the table's entries are used.
  RegistrationEntries(RegistrationTables tables, const CallLog& calls, std::size_t capacity);
  RegistrationEntries(const RegistrationEntries&) = delete;
  RegistrationEntries& operator=(const RegistrationEntries&) = delete;
  ~RegistrationEntries() = default;

  [[nodiscard]] const RegistrationTables& tables() const noexcept { return tables_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// An entry that says of no segment that it is to be open, which all others have followed; nothing if there
  /// is none.
  [[nodiscard]] std::optional<std::uint32_t> unused() const noexcept;
  /// Tells the others to open the segment of this handle, by an entry that is unused.
  void open(std::uint32_t entry, const backend::MemoryHandle& handle) noexcept;
  /// Tells the others to close the entry's segment.
  void close(std::uint32_t entry) noexcept;

  [[nodiscard]] std::uint64_t version_of(std::uint32_t entry) const noexcept {
    return tables_.own().entries[entry].version.load();
  }
  /// What others have made of the entry, by member.
  [[nodiscard]] std::span<RegistrationView> views_of(std::uint32_t entry) const noexcept {
    return tables_.views_of(tables_.rank, entry);
  }
  /// Whether all other ranks have followed the entry to its version, or are gone.
  [[nodiscard]] bool is_followed(std::uint32_t entry) const noexcept;
  /// Why others could not open the entry's segment, which they have followed; empty if they have it open.
  [[nodiscard]] std::string failure_of(std::uint32_t entry) const;
  /// Whether a rank that has not followed the entry closes nothing for now.
  [[nodiscard]] bool is_held_for_long(std::uint32_t entry) const noexcept;
  /// Whether another rank would close nothing for now, whatever it was told.
  [[nodiscard]] bool would_be_held_for_long() const noexcept;

 private:
  [[nodiscard]] bool closes_nothing(std::size_t rank) const noexcept;
  void ring_all() noexcept;

  const RegistrationTables tables_;
  const CallLog& calls_;
  const std::size_t capacity_;
};

}  // namespace tutti::transport::team
