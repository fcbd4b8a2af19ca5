#pragma once

#include "results.hpp"

#include <string>
#include <vector>

/// What people read. Lines that are not rows start with '#', as in nccl-tests; all functions return whole
/// lines.
namespace tutti::perf {

/// Version, settings, devices, links and peers.
[[nodiscard]] std::string format_header(const Options& options, const Results& results);
/// Above the rows of one operation.
[[nodiscard]] std::string format_column_titles(const std::string& operation, ResultForm results);
[[nodiscard]] std::string format_row(const Row& row, Headline headline);
/// Copies between pairs: a matrix of latencies and one of bandwidths; `rows` are those of one element type.
[[nodiscard]] std::string format_pair_matrices(const std::vector<Row>& rows, Headline headline);
[[nodiscard]] std::string format_skipped(const Skipped& skipped);
/// Total wrong, what was skipped, average bus bandwidth.
[[nodiscard]] std::string format_footer(const Results& results, const Options& options);

}  // namespace tutti::perf
