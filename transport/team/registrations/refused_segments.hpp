// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/registrations/memory_identities.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::transport::team {

/// Remembers memory that could not be offered to the other ranks, and why, until it changes: it is told of
/// once, and what is in pieces, whose export takes time for each, is not tried again.
class RefusedSegments {
 public:
  /// Returns why the memory cannot be offered: all of some memory that could not be is within it. nullptr if
  /// that is not known.
  [[nodiscard]] const std::string* reason_of(std::span<const std::byte> memory) const noexcept {
    const auto found = std::ranges::find_if(refused_, [memory](const Refused& refused) {
      return refused.begin >= memory.data() && refused.begin + refused.bytes <= memory.data() + memory.size();
    });
    return found == refused_.end() ? nullptr : &found->reason;
  }
  /// Adds memory, which consists of these, if it is foreign. Returns true if it shares no bytes with memory
  /// that is known.
  [[nodiscard]] bool add(std::span<const std::byte> memory, MemoryIdentities identities, std::string reason) {
    const bool is_new =
        std::ranges::none_of(refused_, [memory](const Refused& refused) { return refused.overlaps(memory); });
    std::erase_if(refused_, [memory](const Refused& refused) {  // what contains those, contains this
      return refused.begin <= memory.data() && memory.data() + memory.size() <= refused.begin + refused.bytes;
    });
    refused_.push_back({memory.data(), memory.size(), std::move(identities), std::move(reason)});
    return is_new;
  }
  /// Forgets memory that shares bytes with `memory`, which changes.
  void forget(std::span<const std::byte> memory) noexcept {
    std::erase_if(refused_, [memory](const Refused& refused) { return refused.overlaps(memory); });
  }
  /// Forgets memory whose identities are not current any more.
  template <class AreCurrent>
  void forget_unless(const AreCurrent& are_current) {
    std::erase_if(refused_, [&](const Refused& refused) { return !are_current(refused.identities); });
  }

 private:
  struct Refused {
    const std::byte* begin = nullptr;
    std::size_t bytes = 0;
    MemoryIdentities identities;
    std::string reason;

    [[nodiscard]] bool overlaps(std::span<const std::byte> memory) const noexcept {
      return begin < memory.data() + memory.size() && memory.data() < begin + bytes;
    }
  };
  std::vector<Refused> refused_;
};

}  // namespace tutti::transport::team
