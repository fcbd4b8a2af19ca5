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
/// is as wide as what the run will put into it.
class Columns {
 public:
  /// `has_peer`: whether rows of a peer are among the table's.
  Columns(const Options& options, bool has_peer);

  /// Three lines: groups, titles, units.
  [[nodiscard]] std::string titles() const;
  [[nodiscard]] std::string line(const Row& row) const;

 private:
  enum class Group : std::uint8_t { what, out_of_place, in_place, latency, whose, when };
  struct Column {
    Group group;
    std::string_view title;
    std::string_view unit;
    std::size_t width;
    std::function<std::string(const Row&)> value;
  };

  [[nodiscard]] static std::vector<Column> identifying(const Options& options);
  [[nodiscard]] std::size_t width() const;
  void add_placement(const Options& options, Group group, std::optional<Measurement> Row::*part);
  void add_latencies(const Options& options);
  template <class Text>
  [[nodiscard]] std::string joined(char lead, Text&& text) const;

  ResultForm results_;
  std::vector<Column> columns_;
};

/// Three to four significant digits, at most seven letters below ten seconds in microseconds.
[[nodiscard]] std::string format_figure(double value);

}  // namespace tutti::perf
