#pragma once

#include "results.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// All figures of a run as a JSON document of schema "tutti-perf/1": bytes, microseconds, GB/s (10^9). Of the
/// environment it has only variables that change how devices and transports behave.
[[nodiscard]] std::string to_json(const Options& options, const Results& results,
                                  const std::vector<std::string>& command_line);

}  // namespace tutti::perf
