// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/known_memory.hpp"

#include <algorithm>
#include <optional>

namespace tutti::collectives {

thread_local constinit KnownMemory KnownMemory::known_here;

KnownMemory& KnownMemory::of_thread() noexcept {
  return known_here;
}

bool KnownMemory::has(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) const {
  std::optional<std::uint64_t> identity;
  return std::ranges::any_of(entries_, [&](const Entry& entry) {
    if (!entry.contains(data, bytes) || entry.device != device || entry.generation != runtime.generation())
      return false;
    if (!identity) identity = runtime.backend().identity_of(data);
    return entry.identity == *identity;
  });
}

void KnownMemory::add(Runtime& runtime, const std::byte* data, std::span<const std::byte> around,
                      int device) {
  const std::uint64_t identity = runtime.backend().identity_of(data);
  if (identity == 0) return;
  auto place = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.memory.data() == around.data() && entry.device == device;
  });
  if (place == entries_.end()) {
    place = entries_.begin() + static_cast<std::ptrdiff_t>(oldest_);
    oldest_ = (oldest_ + 1) % entries_.size();
  }
  *place = {around, identity, runtime.generation(), device};
}

}  // namespace tutti::collectives
