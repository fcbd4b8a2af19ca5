// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/options.hpp"
#include "perf/processes/processes.hpp"
#include "perf/report/output.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// Measures what `options` ask for, from devices to the last line: prints the table, writes the files and
/// says what is wrong with the run. Returns an exit status. `command_line` is what the files have of how it
/// was started. Called on all ranks together; what keeps the run from its beginning is thrown.
[[nodiscard]] int measure_and_report(Options options, const std::vector<std::string>& command_line,
                                     Processes& processes, const Output& output);

}  // namespace tutti::perf
