// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"

#include <string>

/// What is shown of devices and plans, and not measured.
namespace tutti::perf {

/// The devices and links of this process; of ranks, what every one of them sees, those together that see the
/// same, and how they reach one another. Collective. Throws as Session.
[[nodiscard]] std::string show_topology(const Options& options, Processes& processes);

/// The plan of the operation that `options` name, and why, on all ranks alike. Collective. Throws UsageError
/// for what cannot be called, or not as it was asked for.
[[nodiscard]] std::string explain_operation(const Options& options, Processes& processes);

}  // namespace tutti::perf
