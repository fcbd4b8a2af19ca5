#pragma once

#include <cstdint>
#include <optional>

namespace tutti::backend::host {

/// `TUTTI_VIRTUAL_SEED`, if set. Throws Error(invalid_argument) if it is no number.
[[nodiscard]] std::optional<std::uint64_t> interleaving_seed_from_environment();

}  // namespace tutti::backend::host
