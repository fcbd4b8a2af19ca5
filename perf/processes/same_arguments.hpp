// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"

#include <span>
#include <string>

namespace tutti::perf {

/// The arguments, each after a space, without the program's name and the files: each rank may be told files
/// of its own.
[[nodiscard]] std::string arguments_of_all(std::span<const char* const> arguments);

/// Ranks that were told different things would wait for one another. Collective. Throws UsageError.
void require_same_arguments(std::span<const char* const> arguments, Processes& processes);

}  // namespace tutti::perf
