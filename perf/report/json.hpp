// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

using Json = nlohmann::ordered_json;

enum class Detail : std::uint8_t { summaries, each_latency };

/// Returns an entry of `rows`.
[[nodiscard]] Json row_of(const Row& row, Detail detail);

/// Returns the value, or null if there is none; of a text, if it is empty.
template <class Value>
[[nodiscard]] Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}
[[nodiscard]] Json or_null(const std::string& text);

/// All figures of a run as a JSON document of schema "tutti-perf/2": bytes, microseconds, GB/s (10^9). Of the
/// environment it has the variables of the library, of CUDA and of NCCL, other than secrets.
///
/// `date` (UTC, of the start), `commit` and `compiler` of the program, `host`, `cpu` and `system` of the
/// process that writes, `driver` and `cuda` (the toolkit) of its GPUs; null where unknown or not there.
///
/// `mode` is "single_process" or "ranks". `members` are all devices that take part, each with its rank and
/// host, its clocks, power and temperature before and after, and what throttled it meanwhile (all null of
/// virtual ones); `devices` and `links` are those that the process which writes sees. `start_up_ms` is null
/// in one process. Of each measurement `ranks` has every rank's median time, which rank was slowest, and its
/// time over the fastest one's; null for a single rank. `cv` is a coefficient of variation. The `root` of an
/// operation that has none is -1. A `rows` entry is of tutti or of a peer (`by`); what it does not have,
/// `in_place` for instance, is null. `not_measured` says what was left out, and why.
[[nodiscard]] std::string to_json(const Options& options, const Results& results,
                                  const std::vector<std::string>& command_line);

}  // namespace tutti::perf
