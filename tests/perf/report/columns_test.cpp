// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"

#include "perf/operations/operation.hpp"
#include "perf/report/reported_rows.hpp"
#include "perf/report/table.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// Returns a row with the largest figures that such a run may have.
Row widest_row(const Options& options) {
  Row row = scatter_row();
  row.bytes = options.sizes.end;
  row.dtype = options.dtypes.front();
  row.count = static_cast<std::int64_t>(row.bytes / size_of(row.dtype));
  row.root = 15;
  row.out_of_place = measured(4'999'999.0, 123'456);
  row.in_place = measured(4'999'999.0, 123'456);
  row.peer_mode = "R2";
  row.out_of_place->over_tutti = 123.45;
  row.out_of_place->is_fastest_peer = true;
  return row;
}

/// Returns the titles of a table's columns, in order.
std::vector<std::string> titles_of(const Columns& columns) {
  std::istringstream lines(columns.titles());
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  std::vector<std::string> titles = words_of(line);
  titles.erase(titles.begin());  // the '#'
  return titles;
}

std::size_t longest_line(const Columns& columns, const Row& row) {
  std::istringstream lines(columns.titles() + columns.line(row));
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

/// Returns the options of a run whose table has every column that tells rows apart.
Options options_of_a_large_run() {
  Options options;
  options.sizes.end = std::size_t{64} << 30U;
  options.dtypes = {DType::float8_e4m3, DType::complex128};
  options.reductions = {ReduceKind::sum, ReduceKind::premul_sum};
  options.root = std::nullopt;
  options.peer = PeerChoice::nccl;
  options.operations = {find_operation("reduce_add", Mode::single_process)};
  return options;
}

TEST(PerfColumns, FitIntoTheirWidthAsFarAsWhatStaysDoes) {
  Options usual;
  usual.operations = {find_operation("scatter", Mode::single_process)};
  for (const Options& options : {usual, options_of_a_large_run()}) {
    for (const bool has_peer : {false, true}) {
      const Row row = widest_row(options);
      const std::size_t narrowest = longest_line(Columns(options, has_peer, 0), row);
      for (std::size_t width = 40; width <= 200; ++width) {
        const Columns columns(options, has_peer, width);
        const std::size_t longest = longest_line(columns, row);
        EXPECT_LE(longest, std::max(width, narrowest));
        EXPECT_EQ(columns.left_out().empty(), width >= columns.full_width());
        if (columns.left_out().empty()) {
          EXPECT_EQ(longest, columns.full_width());
        }
      }
    }
  }
}

TEST(PerfColumns, WhatTellsRowsApartStaysAtEveryWidth) {
  EXPECT_EQ(titles_of({options_of_a_large_run(), true, 0}),
            (std::vector<std::string>{"size", "type", "redop", "root", "time", "#wrong", "time", "#wrong",
                                      "by", "-R", "peer"}));
  Options options = options_of_a_large_run();
  options.root = 3;
  options.dtypes = {DType::float8_e4m3};
  const Columns columns(options, false, 0);
  EXPECT_EQ(titles_of(columns),
            (std::vector<std::string>{"size", "redop", "time", "#wrong", "time", "#wrong"}));
  EXPECT_EQ((std::vector<std::string>{columns.left_out().begin(), columns.left_out().begin() + 3}),
            (std::vector<std::string>{"type (float8_e4m3)", "root (3)", "count"}));
}

TEST(PerfColumns, ADimensionHasAColumnWhereItIsNotTheUsualOne) {
  Options options;
  options.operations = {find_operation("scatter", Mode::single_process)};
  EXPECT_EQ(titles_of({options, false, 500}).back(), "p99");
  options.dims = {0, 1};
  EXPECT_EQ(titles_of({options, false, 0}).back(), "dim");
  Row row = scatter_row();
  row.dim = 1;
  EXPECT_EQ(words_of(Columns(options, false, 0).line(row)).back(), "1");
  options.dims = {1};
  EXPECT_EQ(titles_of({options, false, 500}).back(), "dim");
  EXPECT_EQ(Columns(options, false, 0).left_out().at(3), "dim (1)");
}

TEST(PerfColumns, EveryRowHasTheSameNumberOfWordsWhoeverItIsOf) {
  const Options options = options_of_a_large_run();
  const Columns columns(options, true, 500);
  EXPECT_TRUE(columns.left_out().empty());
  Row row = widest_row(options);
  const std::vector<std::string> of_peer = words_of(columns.line(row));
  EXPECT_EQ(of_peer.size(), titles_of(columns).size());
  row.peer_mode.clear();
  row.out_of_place->is_fastest_peer = false;
  row.in_place = std::nullopt;
  const std::vector<std::string> own = words_of(columns.line(row));
  EXPECT_EQ(own.size(), of_peer.size());
  EXPECT_EQ((std::vector<std::string>{own.end() - 3, own.end()}),
            (std::vector<std::string>{"tutti", "-", "-"}));
}

TEST(PerfColumns, NarrowOnesLeaveOutWhatTheHeadTellsAndWhatOtherFiguresImply) {
  const Columns narrow({}, false, 80);
  EXPECT_EQ(words_of(narrow.line(scatter_row())),
            (std::vector<std::string>{"8000000", "100.0", "80.00", "60.00", "0", "N/A", "N/A", "N/A", "200.0",
                                      "200.0"}));
  const std::string header = format_header({}, results_of({}), narrow);
  EXPECT_NE(header.find("# no room for: type (float32), redop (none), root (-1), count, algbw in place "
                        "(COLUMNS="),
            std::string::npos)
      << header;
  EXPECT_EQ(format_header({}, results_of({}), Columns({}, false, 200)).find("no room"), std::string::npos);
}

}  // namespace
}  // namespace tutti::perf
