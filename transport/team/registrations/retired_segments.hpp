// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/caching_allocator.hpp"
#include "transport/team/shared/registration_tables.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace tutti::transport::team {

/// A segment of a caching allocator of this process that has an entry in the rank's table.
struct RegisteredSegment {
  std::size_t bytes = 0;
  std::uint32_t entry = 0;
  std::uint64_t last_use = 0;    ///< sequence number of a call
  std::uint64_t last_batch = 0;  ///< number of a batch of messages
  bool is_kept = false;          ///< captured calls may use it, or kernels of symmetric memory
  bool is_open = false;          ///< all others have reported so
  bool was_awaited = false;      ///< by a message, to be opened by its sender
};
using RegisteredSegments = std::map<const std::byte*, RegisteredSegment>;  ///< by address

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
  /// Returns what keeps the segment at `address` from being freed. The segment may have been retired and
  /// registered again; all of its entries count. `has_left(rank)` tells whether the rank has nothing open any
  /// more, `is_lasting(entry)` whether some rank closes the entry only after some time.
  template <class HasLeft, class IsLasting>
  [[nodiscard]] Hold hold_on(const std::byte* address, const HasLeft& has_left, const IsLasting& is_lasting) {
    const std::lock_guard lock(mutex_);
    auto hold = Hold::none;
    const auto [first, last] = segments_.equal_range(address);
    for (auto segment = first; segment != last;) {
      const std::uint32_t entry = segment->second.entry;
      if (!tables_.any_behind(entry, [&](std::size_t rank) { return !has_left(rank); })) {
        segment = segments_.erase(segment);
        continue;
      }
      hold = std::max(hold, is_lasting(entry) ? Hold::lasting : Hold::passing);
      ++segment;
    }
    return hold;
  }

 private:
  const RegistrationTables tables_;
  std::mutex mutex_;
  std::multimap<const std::byte*, RegisteredSegment> segments_;  ///< by address
};

}  // namespace tutti::transport::team
