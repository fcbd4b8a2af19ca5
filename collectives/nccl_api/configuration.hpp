// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/nccl_api.h"

#include <cstddef>
#include <vector>

namespace tutti::nccl_api {

/// Throws a `Refusal` if the program has not initialized its configuration, which may be a null pointer.
void require_config(const char* function, const ncclConfig_t* config);

/// A configuration as NCCL is to have it: a copy of the program's, in which calls block. Empty: none.
using Configuration = std::vector<std::byte>;
/// Returns a copy; of a null pointer, none.
[[nodiscard]] Configuration configuration_of(const ncclConfig_t* config);
/// Returns what NCCL expects as an argument.
[[nodiscard]] ncclConfig_t* config_in(Configuration& configuration) noexcept;

/// Returns what the settings and the program's configuration, which may be a null pointer, ask for.
[[nodiscard]] Need need_of(const ncclConfig_t* config);

}  // namespace tutti::nccl_api
