// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"

#include <string>

namespace tutti::perf {

/// The devices and links of this process; of ranks, what every one of them sees, those together that see the
/// same, and how they reach one another. Collective. Throws as Session.
[[nodiscard]] std::string show_topology(const Options& options, Processes& processes);

}  // namespace tutti::perf
