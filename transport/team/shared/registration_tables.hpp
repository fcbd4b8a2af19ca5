// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "os/shared_flag.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// One rank's requests to the others to open its memory, in memory that all ranks share. Zero-filled at
/// first.
struct RegistrationTable {
  static constexpr std::size_t capacity = 2048;  ///< segments of one rank

  /// A segment. An odd version asks the others to have it open, an even one not to; the next odd version
  /// comes only when all others have followed.
  struct Entry {
    std::atomic<std::uint64_t> version{0};
    backend::MemoryHandle handle;
  };
  [[nodiscard]] static constexpr bool is_open(std::uint64_t version) noexcept { return version % 2 == 1; }

  backend::SharedFlag bell;               ///< rung when entries of others have changed
  std::atomic<std::uint32_t> used{0};     ///< entries from here on have never been used
  std::array<Entry, capacity> entries{};  ///< written by their rank only
  std::array<char, 256> failure{};        ///< why this rank could not open somebody's segment
  std::atomic<bool> is_held_up{false};    ///< this rank has been unable to close anything for a while
};

/// A member process's view of an entry: the version up to which it has followed, and the address of the
/// segment for the member's device. Without an address, the process could not open the segment.
struct RegistrationView {
  std::atomic<std::uint64_t> version{0};
  std::atomic<std::uint64_t> address{0};
};

/// Locates the tables and views of all ranks; valid for as long as their memory is.
struct RegistrationTables {
  [[nodiscard]] static constexpr std::size_t view_count(std::size_t ranks, std::size_t members) noexcept {
    return ranks * RegistrationTable::capacity * members;
  }

  std::size_t rank = 0;
  std::vector<std::size_t> rank_of_member;
  std::vector<bool> shares_process;  ///< by rank, as `Membership::shares_process`
  std::span<const RankStatus> statuses;
  std::span<RegistrationTable> registrations;  ///< by rank
  std::span<RegistrationView> views;           ///< by rank, entry, member

  [[nodiscard]] RegistrationTable& own() const noexcept { return registrations[rank]; }
  [[nodiscard]] bool is_local(std::size_t member) const noexcept { return rank_of_member[member] == rank; }
  [[nodiscard]] std::span<RegistrationView> views_of(std::size_t of_rank, std::size_t entry) const noexcept {
    const std::size_t members = rank_of_member.size();
    return views.subspan((of_rank * RegistrationTable::capacity + entry) * members, members);
  }
  [[nodiscard]] bool has_left(std::size_t other) const noexcept {
    return statuses[other].state.load() >= RankStatus::left;
  }
  /// Returns true if `holds(rank)` for the rank of a member that has not followed this rank's entry to its
  /// version.
  template <class Predicate>
  [[nodiscard]] bool any_behind(std::uint32_t entry, const Predicate& holds) const {
    const std::uint64_t version = own().entries[entry].version.load();
    const std::span<const RegistrationView> followed = views_of(rank, entry);
    for (std::size_t member = 0; member < followed.size(); ++member) {
      if (is_local(member) || followed[member].version.load() == version) continue;
      if (holds(rank_of_member[member])) return true;
    }
    return false;
  }
};

}  // namespace tutti::transport::team
