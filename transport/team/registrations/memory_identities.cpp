// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/memory_identities.hpp"

#include <algorithm>

namespace tutti::transport::team {

MemoryIdentities identities_of(backend::Backend& backend, std::span<const std::byte> memory) {
  MemoryIdentities identities;
  const std::byte* const end = memory.data() + memory.size();
  for (const std::byte* at = memory.data(); at < end;) {
    const backend::PointerInfo info = backend.pointer_info(at);
    const std::uint64_t identity = backend.identity_of(at);
    if (identity == 0 || info.base + info.bytes <= at) return {};
    identities.emplace_back(at, identity);
    at = info.base + info.bytes;
  }
  return identities;
}

bool are_current(backend::Backend& backend, const MemoryIdentities& identities) {
  return std::ranges::all_of(
      identities, [&](const auto& known) { return backend.identity_of(known.first) == known.second; });
}

}  // namespace tutti::transport::team
