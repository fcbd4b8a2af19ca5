// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/known_memory.hpp"

#include "base/hash.hpp"

#include <algorithm>

namespace tutti::collectives {

thread_local constinit KnownMemory KnownMemory::known_here;

KnownMemory& KnownMemory::of_thread() noexcept {
  return known_here;
}

std::size_t KnownMemory::set_of(std::uint64_t identity) noexcept {
  return mix(0, identity) % std::tuple_size_v<decltype(sets_)>;
}

bool KnownMemory::has(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) const {
  const std::uint64_t identity = runtime.backend().identity_of(data);
  if (identity == 0) return false;
  return std::ranges::any_of(sets_[set_of(identity)].entries, [&](const Entry& entry) {
    return entry.identity == identity && entry.contains(data, bytes) && entry.device == device &&
           entry.generation == runtime.generation();
  });
}

void KnownMemory::add(Runtime& runtime, const std::byte* data, std::span<const std::byte> around,
                      int device) {
  const std::uint64_t identity = runtime.backend().identity_of(data);
  if (identity == 0) return;
  Set& set = sets_[set_of(identity)];
  auto place = std::ranges::find(set.entries, identity, &Entry::identity);
  if (place == set.entries.end()) {
    place = set.entries.begin() + static_cast<std::ptrdiff_t>(set.oldest);
    set.oldest = (set.oldest + 1) % entries_per_set;
  }
  *place = {around, identity, runtime.generation(), device};
}

}  // namespace tutti::collectives
