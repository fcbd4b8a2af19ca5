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

/// Lays out the columns of a table: those of nccl-tests in their order, then latencies, then columns that
/// distinguish rows in this run (dimensions, a peer), the comparison with a peer, and the time of
/// measurement. Each column is as wide as its widest value in the run.
class Columns {
 public:
  /// Lays out the columns. `has_peer`: the table has rows of a peer.
  Columns(const Options& options, bool has_peer);

  /// Returns three lines: groups, titles, units.
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
  void add_placement(const Options& options, Group group, std::optional<Measurement> Row::*part);
  void add_latencies(const Options& options);
  template <class Text>
  [[nodiscard]] std::string joined(char lead, Text&& text) const;

  ResultForm results_;
  std::vector<Column> columns_;
};

/// Formats a number with three to four significant digits, in at most seven characters for times below ten
/// seconds in microseconds.
[[nodiscard]] std::string format_figure(double value);

}  // namespace tutti::perf
