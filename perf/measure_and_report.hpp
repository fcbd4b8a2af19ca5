// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"
#include "perf/report/output.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// Measures everything that `options` ask for: prints the table, writes the files and reports errors of the
/// run. Returns an exit status. `command_line` is recorded in the files. Called on all ranks together. Throws
/// an error that keeps the run from starting.
[[nodiscard]] int measure_and_report(Options options, const std::vector<std::string>& command_line,
                                     Processes& processes, const Output& output);

}  // namespace tutti::perf
