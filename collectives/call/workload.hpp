// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "collectives/call/request.hpp"
#include "tutti/collectives.hpp"

#include <cstddef>

namespace tutti::collectives {

/// Converts a workload into the request that a call among `members` devices would make of it, on one
/// process's devices or a team's. Throws Error(invalid_argument) for a call that is not possible.
[[nodiscard]] Request request_of(const Arguments& arguments, const Workload& workload, std::size_t members);

}  // namespace tutti::collectives
