// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::transport::team {

/// The identities (`MemoryCalls::identity_of`) of the blocks or pieces that memory consists of, by address.
/// They tell whether a program has freed memory that is neither the allocator's nor registered.
using MemoryIdentities = std::vector<std::pair<const std::byte*, std::uint64_t>>;

/// Returns the identities of what the memory consists of; empty if one is not known.
[[nodiscard]] MemoryIdentities identities_of(backend::Backend& backend, std::span<const std::byte> memory);
/// Returns true if the memory still has these identities.
[[nodiscard]] bool are_current(backend::Backend& backend, const MemoryIdentities& identities);

}  // namespace tutti::transport::team
