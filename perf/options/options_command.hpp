// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/command_line.hpp"
#include "perf/options/options.hpp"

namespace tutti::perf {

/// What is to be done, and with which operations. The mode of `options` is known. Throws UsageError.
void parse_command(const TypedOptions& typed, Options& options);

/// Of `explain`, which shows one plan, of a call: called when the types, reductions, roots and dimensions
/// of `options` are known. Throws UsageError.
void require_one_plan(const Options& options);

}  // namespace tutti::perf
