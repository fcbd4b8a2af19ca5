// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/known_memory.hpp"

#include "base/hash.hpp"

#include <algorithm>

namespace tutti::collectives {

thread_local constinit KnownMemory KnownMemory::known_here;

KnownMemory& KnownMemory::of_thread() noexcept {
  return known_here;
}

std::size_t KnownMemory::set_of(const std::byte* data) noexcept {
  return mix(0, reinterpret_cast<std::uintptr_t>(data)) % std::tuple_size_v<decltype(sets_)>;
}

bool KnownMemory::has(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) const {
  const auto& entries = sets_[set_of(data)].entries;
  const auto known = std::ranges::find(entries, data, &Entry::data);
  return known != entries.end() && bytes <= known->bytes && known->device == device &&
         known->generation == runtime.generation() && known->identity == runtime.backend().identity_of(data);
}

void KnownMemory::add(Runtime& runtime, const std::byte* data, std::size_t bytes, int device) {
  const std::uint64_t identity = runtime.backend().identity_of(data);
  if (identity == 0) return;
  Set& set = sets_[set_of(data)];
  auto place = std::ranges::find(set.entries, data, &Entry::data);
  if (place == set.entries.end()) {
    place = set.entries.begin() + static_cast<std::ptrdiff_t>(set.oldest);
    set.oldest = (set.oldest + 1) % entries_per_set;
  }
  *place = {data, bytes, identity, runtime.generation(), device};
}

}  // namespace tutti::collectives
