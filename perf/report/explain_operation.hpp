// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"

#include <string>

namespace tutti::perf {

/// The plan of the operation that `options` name, and why, on all ranks alike. Collective. Throws UsageError
/// for what cannot be called, or not as it was asked for.
[[nodiscard]] std::string explain_operation(const Options& options, Processes& processes);

}  // namespace tutti::perf
