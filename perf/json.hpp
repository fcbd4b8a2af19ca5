#pragma once

#include "results.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// All figures of a run as a JSON document of schema "tutti-perf/2": bytes, microseconds, GB/s (10^9). Of the
/// environment it has only variables that change how devices and transports behave.
///
/// Since "tutti-perf/1": `mode`, `ranks`, `devices_per_rank`, `hosts`, `members` and `start_up_ms` have come;
/// the `root` of an operation that has none is -1.
[[nodiscard]] std::string to_json(const Options& options, const Results& results,
                                  const std::vector<std::string>& command_line);

}  // namespace tutti::perf
