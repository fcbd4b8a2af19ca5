// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// Lays out the columns of a table: those of nccl-tests in their order, then latencies, then what else tells
/// rows apart in this run (dimensions, a peer), how a peer compares, and when rows were measured. Each column
/// is as wide as what the run will put into it. Where a terminal is too narrow for all, columns are left out:
/// first those that have one value in all rows, which the head tells, then figures that others imply. What
/// tells rows apart stays, and so do times and wrong elements, even if lines are longer than the terminal
/// then.
class Columns {
 public:
  /// `has_peer`: whether rows of a peer are among the table's. `width`: of a line, in letters.
  Columns(const Options& options, bool has_peer, std::size_t width);

  /// Three lines: groups, titles, units.
  [[nodiscard]] std::string titles() const;
  [[nodiscard]] std::string line(const Row& row) const;
  /// The titles of what has been left out, such as "algbw in place", each with the value that all rows have,
  /// as "root (0)"; empty: nothing.
  [[nodiscard]] const std::vector<std::string>& left_out() const noexcept { return left_out_; }
  /// That the table has without leaving anything out.
  [[nodiscard]] std::size_t full_width() const noexcept { return full_width_; }

 private:
  enum class Group : std::uint8_t { what, out_of_place, in_place, latency, whose, when };
  struct Column {
    Group group;
    std::string_view title;
    std::string_view unit;
    std::size_t width;
    std::size_t turn;  ///< tells when a column is left out: those of a smaller turn go before others
    std::string same;  ///< the value that all rows have which have any; empty: it tells rows apart
    std::function<std::string(const Row&)> value;
  };

  [[nodiscard]] static std::vector<Column> identifying(const Options& options);
  [[nodiscard]] std::size_t width() const;
  void add_placement(const Options& options, Group group, std::optional<Measurement> Row::*part);
  void add_latencies(const Options& options);
  void leave_out(std::size_t width);
  template <class Text>
  [[nodiscard]] std::string joined(char lead, Text&& text) const;

  ResultForm results_;
  std::vector<Column> columns_;
  std::vector<std::string> left_out_;
  std::size_t full_width_ = 0;
};

/// Three to four significant digits, at most seven letters below ten seconds in microseconds.
[[nodiscard]] std::string format_figure(double value);

}  // namespace tutti::perf
