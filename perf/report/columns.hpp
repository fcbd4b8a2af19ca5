// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"

#include <cstddef>
#include <cstdint>
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
  enum class Figure : std::uint8_t {
    size,
    count,
    type,
    redop,
    root,
    time,
    algbw,
    busbw,
    wrong,
    change,
    p50,
    p99,
    least,
    most,
    variation,
    dim,
    by,
    mode,
    peer,
    timestamp
  };
  struct Column {
    Group group = Group::what;
    Figure figure = Figure::size;
    std::string_view title;
    std::string_view unit;
    std::size_t width = 0;
    std::string same{};  ///< the value that all rows have which have any; empty: it tells rows apart
  };

  [[nodiscard]] static std::vector<Column> identifying(const Options& options);
  /// Tells when a column is left out: those of a smaller turn go before others.
  [[nodiscard]] static std::size_t turn_of(const Column& column, const Options& options) noexcept;
  [[nodiscard]] std::size_t width() const;
  void leave_out(std::size_t width, const Options& options);
  [[nodiscard]] std::string value(const Column& column, const Row& row) const;
  template <class Text>
  [[nodiscard]] std::string joined(char lead, Text&& text) const;

  Headline headline_;
  ResultForm results_;
  std::vector<Column> columns_;
  std::vector<std::string> left_out_;
  std::size_t full_width_ = 0;
};

/// Three to four significant digits, at most seven letters below ten seconds in microseconds.
[[nodiscard]] std::string format_figure(double value);

}  // namespace tutti::perf
