// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "tutti/topology.hpp"

namespace tutti::perf {

/// Starts the library on the backend and the virtual devices that the options ask for, by the environment,
/// which it reads when it is first used; in one process also tests the peers. Returns what there is then.
/// Throws UsageError, which names the option, for a backend or a topology that cannot be used.
[[nodiscard]] Topology start_library(const Options& options, bool are_ranks);

}  // namespace tutti::perf
