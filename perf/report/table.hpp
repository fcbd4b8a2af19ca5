// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/report/columns.hpp"
#include "perf/report/output.hpp"

#include <string>
#include <vector>

/// Formats the table for people. Lines that are not rows start with '#', as in nccl-tests; all functions
/// return whole lines.
namespace tutti::perf {

/// Formats the head: version, settings, devices that take part, links and peers.
[[nodiscard]] std::string format_header(const Options& options, const Results& results);
/// Formats the ranks and their devices; empty for one process.
[[nodiscard]] std::string format_members(const Job& job);
/// Formats the titles above the rows of one operation.
[[nodiscard]] std::string format_column_titles(const std::string& operation, const Columns& columns);
/// Formats the transport and algorithm of a row, for the line above the first row that has them.
[[nodiscard]] std::string format_choice(const Row& row);
/// Formats copies between pairs as a matrix of latencies and one of bandwidths; `rows` are those of one
/// element type.
[[nodiscard]] std::string format_pair_matrices(const std::vector<Row>& rows);
[[nodiscard]] std::string format_skipped(const Skipped& skipped);
/// Formats the foot: wrong elements in total, cases left out, average bus bandwidth.
[[nodiscard]] std::string format_footer(const Results& results);

/// Prints the table row by row.
class TablePrinter {
 public:
  /// Makes a printer. The arguments must outlive it.
  TablePrinter(const Options& options, const Output& output, const Columns& columns)
      : options_(options), output_(output), columns_(columns) {}

  /// Announces that everything is measured once more; the first cycle is 1.
  void start_cycle(int cycle);
  void start_operation(const Operation& operation);
  void finish_row(const Operation& operation, const Row& row);
  void skip_row(const Skipped& skipped);
  void finish_operation();

 private:
  const Options& options_;
  const Output& output_;
  const Columns& columns_;
  std::string choice_;  ///< what carried the last row of tutti's
  std::vector<Row> pairs_;
};

}  // namespace tutti::perf
