// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/options/command_line.hpp"
#include "perf/options/options.hpp"

namespace tutti::perf {

/// What is told of times besides, where it goes, and what it is compared with. Called when all else of
/// `options` is known. Throws UsageError.
void parse_report(const TypedOptions& typed, Options& options);

}  // namespace tutti::perf
