// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <string>

namespace tutti::perf {

/// The rows of a run as comma-separated values (RFC 4180, lines that end with a line feed): a header line
/// with the names that the JSON document has, those of parts with dots between them
/// (`in_place.latency_us.p99`), then a line for each row. The columns are the same whatever is measured. What
/// the document has as null, or has not, is empty; lists have semicolons between their values.
[[nodiscard]] std::string to_csv(const Options& options, const Results& results);

}  // namespace tutti::perf
