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

/// Manages the entries of this rank's registration table, which tell the other ranks which of its segments to
/// have open, and reads how far they have followed.
///
/// One thread at a time may call `unused`, `open` and `close`; any thread may call the rest.
class RegistrationEntries {
 public:
  /// `capacity` is the number of entries that are used.
  RegistrationEntries(RegistrationTables tables, const CallLog& calls, std::size_t capacity);
  RegistrationEntries(const RegistrationEntries&) = delete;
  RegistrationEntries& operator=(const RegistrationEntries&) = delete;
  ~RegistrationEntries() = default;

  [[nodiscard]] const RegistrationTables& tables() const noexcept { return tables_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  /// Returns an entry that asks for no open segment and that all others have followed; nothing if there is
  /// none.
  [[nodiscard]] std::optional<std::uint32_t> unused() const noexcept;
  /// Tells the others to open the segment of this handle; the entry must be unused. Ranks of this process
  /// have it open at once, at its `address`.
  void open(std::uint32_t entry, const backend::MemoryHandle& handle, const std::byte* address) noexcept;
  /// Tells the others to close the entry's segment.
  void close(std::uint32_t entry) noexcept;

  [[nodiscard]] std::uint64_t version_of(std::uint32_t entry) const noexcept {
    return tables_.own().entries[entry].version.load();
  }
  /// Returns the others' views of the entry, by member.
  [[nodiscard]] std::span<RegistrationView> views_of(std::uint32_t entry) const noexcept {
    return tables_.views_of(tables_.rank, entry);
  }
  /// Returns true if all other ranks have followed the entry to its version, or are gone.
  [[nodiscard]] bool is_followed(std::uint32_t entry) const noexcept;
  /// Returns why others, which have followed the entry, could not open its segment; empty if they have it
  /// open.
  [[nodiscard]] std::string failure_of(std::uint32_t entry) const;
  /// Returns true if a rank that has not followed the entry closes nothing for now.
  [[nodiscard]] bool is_held_for_long(std::uint32_t entry) const noexcept;
  /// Returns true if another rank would close nothing for now, whatever it was told.
  [[nodiscard]] bool would_be_held_for_long() const noexcept;

 private:
  [[nodiscard]] bool closes_nothing(std::size_t rank) const noexcept;
  void ring_all() noexcept;

  const RegistrationTables tables_;
  const CallLog& calls_;
  const std::size_t capacity_;
};

}  // namespace tutti::transport::team
