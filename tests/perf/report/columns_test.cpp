// SPDX-License-Identifier: Apache-2.0
#include "perf/report/columns.hpp"

#include "perf/operations/operation.hpp"
#include "perf/report/reported_rows.hpp"

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

TEST(PerfColumns, AreAsWideAsTheLargestFiguresOfTheRun) {
  const Options options = options_of_a_large_run();
  const Columns columns(options, true);
  std::istringstream titles(columns.titles());
  std::string line;
  for (int number = 0; number < 2; ++number) std::getline(titles, line);
  EXPECT_EQ(columns.line(widest_row(options)).size(), line.size() + 1);  // and the end of the line
}

TEST(PerfColumns, ADimensionHasAColumnWhereItIsNotTheUsualOne) {
  Options options;
  options.operations = {find_operation("scatter", Mode::single_process)};
  EXPECT_EQ(titles_of({options, false}).back(), "p99");
  options.dims = {0, 1};
  EXPECT_EQ(titles_of({options, false}).back(), "dim");
  Row row = scatter_row();
  row.dim = 1;
  EXPECT_EQ(words_of(Columns(options, false).line(row)).back(), "1");
  options.dims = {1};
  EXPECT_EQ(titles_of({options, false}).back(), "dim");
}

TEST(PerfColumns, EveryRowHasTheSameNumberOfWordsWhoeverItIsOf) {
  const Options options = options_of_a_large_run();
  const Columns columns(options, true);
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

}  // namespace
}  // namespace tutti::perf
