// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"

#include <string>

/// Shows devices and plans, without measuring.
namespace tutti::perf {

/// Describes the devices and links of this process. Between ranks, describes what every rank sees, ranks that
/// see the same together, and how they reach one another. Collective. Throws as Session.
[[nodiscard]] std::string show_topology(const Options& options, Processes& processes);

/// Describes the plan of the operation that `options` name, with the reasons, on all ranks alike. Collective.
/// Throws UsageError for a call that is impossible, or impossible with these options.
[[nodiscard]] std::string explain_operation(const Options& options, Processes& processes);

}  // namespace tutti::perf
