// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/command_line.hpp"
#include "perf/options/options.hpp"

namespace tutti::perf {

/// How often, how long, by whom and on what memory the rows are measured. Called when the operations, the
/// peer, launches and results of `options` are known. Throws UsageError.
void parse_runs(const TypedOptions& typed, Options& options);

}  // namespace tutti::perf
