// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "backend/shared_pieces.hpp"
#include "transport/team/registrations/memory_identities.hpp"
#include "transport/team/shared/registration_tables.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

namespace tutti::transport::team {

/// A segment of a caching allocator of this process, or other memory that is opened as one, that has an entry
/// in the rank's table.
struct RegisteredSegment {
  std::size_t bytes = 0;
  bool is_pieces = false;  ///< others keep it until they close it, even if it is freed
  bool is_block = false;   ///< a block of an expandable segment, which may get other bounds
  std::uint32_t entry = 0;
  std::uint64_t last_use = 0;     ///< sequence number of a call
  std::uint64_t last_batch = 0;   ///< number of a batch of messages
  bool is_kept = false;           ///< captured calls may use it, or kernels of symmetric memory
  bool is_open = false;           ///< all others have reported so
  bool was_awaited = false;       ///< by a message, to be opened by its sender
  MemoryIdentities identities{};  ///< of foreign memory that was opened by itself; empty for other memory
  /// Offers the memory to the others, if it is in pieces or from a pool, until all have it open or it is
  /// retired.
  std::unique_ptr<backend::SharedPieces> pieces = nullptr;
};
using RegisteredSegments = std::map<const std::byte*, RegisteredSegment>;  ///< by address

/// Returns whether the segment shares bytes with `memory`.
[[nodiscard]] inline bool overlaps(const RegisteredSegments::value_type& segment,
                                   std::span<const std::byte> memory) noexcept {
  return segment.first < memory.data() + memory.size() &&
         memory.data() < segment.first + segment.second.bytes;
}

/// Tracks segments of this rank that the others have been told to close, and may still have open.
/// Thread-safe.
class RetiredSegments {
 public:
  using Hold = SegmentObserver::Hold;

  explicit RetiredSegments(RegistrationTables tables) : tables_(std::move(tables)) {}
  RetiredSegments(const RetiredSegments&) = delete;
  RetiredSegments& operator=(const RetiredSegments&) = delete;

  void add(RegisteredSegments::node_type segment) noexcept {
    const std::lock_guard lock(mutex_);
    segments_.insert(std::move(segment));
  }
  /// Forgets the segment of the entry, which all others have closed.
  void forget(std::uint32_t entry) noexcept {
    const std::lock_guard lock(mutex_);
    std::erase_if(segments_, [entry](const auto& segment) { return segment.second.entry == entry; });
  }
  /// Returns true if others may have a segment open for which `is_meant` is true.
  template <class IsMeant, class HasLeft>
  [[nodiscard]] bool any_open(const IsMeant& is_meant, const HasLeft& has_left) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(segments_, [&](const auto& segment) {
      const std::uint32_t entry = segment.second.entry;
      return is_meant(segment) &&
             tables_.any_behind(entry, [&](std::size_t rank) { return !has_left(rank); });
    });
  }
  /// Returns what keeps the segment at `address` from being freed; nothing does if it is in pieces. The
  /// segment may have been retired and registered again; all of its entries count. `has_left(rank)` tells
  /// whether the rank has nothing open any more, `is_lasting(entry)` whether some rank closes the entry only
  /// after some time.
  template <class HasLeft, class IsLasting>
  [[nodiscard]] Hold hold_on(const std::byte* address, const HasLeft& has_left, const IsLasting& is_lasting) {
    const std::lock_guard lock(mutex_);
    const auto [first, last] = segments_.equal_range(address);
    return hold_on(first, last, false, has_left, is_lasting);
  }
  /// Works likewise for all segments that share bytes with `memory`, and counts those in pieces, which do not
  /// go back to the device before.
  template <class HasLeft, class IsLasting>
  [[nodiscard]] Hold hold_on(std::span<const std::byte> memory, const HasLeft& has_left,
                             const IsLasting& is_lasting) {
    const std::lock_guard lock(mutex_);
    auto hold = Hold::none;
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      const auto next = std::next(segment);
      if (overlaps(*segment, memory))
        hold = std::max(hold, hold_on(segment, next, true, has_left, is_lasting));
      segment = next;
    }
    return hold;
  }

 private:
  using Retired = std::multimap<const std::byte*, RegisteredSegment>;

  template <class HasLeft, class IsLasting>
  [[nodiscard]] Hold hold_on(Retired::iterator first, Retired::iterator last, bool counts_pieces,
                             const HasLeft& has_left, const IsLasting& is_lasting) {
    auto hold = Hold::none;
    for (auto segment = first; segment != last;) {
      const std::uint32_t entry = segment->second.entry;
      if (!tables_.any_behind(entry, [&](std::size_t rank) { return !has_left(rank); })) {
        segment = segments_.erase(segment);
        continue;
      }
      if (counts_pieces || !segment->second.is_pieces)
        hold = std::max(hold, is_lasting(entry) ? Hold::lasting : Hold::passing);
      ++segment;
    }
    return hold;
  }

  const RegistrationTables tables_;
  std::mutex mutex_;
  Retired segments_;  ///< by address
};

}  // namespace tutti::transport::team
