// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/report/columns.hpp"

#include <string>
#include <vector>

/// What people read. Lines that are not rows start with '#', as in nccl-tests; all functions return whole
/// lines.
namespace tutti::perf {

/// Version, settings, devices that take part, links and peers.
[[nodiscard]] std::string format_header(const Options& options, const Results& results);
/// The ranks and their devices; empty for one process.
[[nodiscard]] std::string format_members(const Job& job);
/// Above the rows of one operation.
[[nodiscard]] std::string format_column_titles(const std::string& operation, const Columns& columns);
/// What carried a row: above the first of those it is the same of.
[[nodiscard]] std::string format_choice(const Row& row);
/// Copies between pairs: a matrix of latencies and one of bandwidths; `rows` are those of one element type.
[[nodiscard]] std::string format_pair_matrices(const std::vector<Row>& rows);
/// Below them, where there is a baseline: how many of tutti's pairs are slower than there by more than
/// `tolerance` per cent. Each size of a pair counts.
[[nodiscard]] std::string format_pairs_over_baseline(const std::vector<Row>& rows, double tolerance);
[[nodiscard]] std::string format_skipped(const Skipped& skipped);
/// Total wrong, what was skipped, average bus bandwidth.
[[nodiscard]] std::string format_footer(const Results& results);

}  // namespace tutti::perf
