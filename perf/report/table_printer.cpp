// SPDX-License-Identifier: Apache-2.0
#include "perf/report/table_printer.hpp"

#include "perf/report/table.hpp"

#include <fmt/format.h>

namespace tutti::perf {

std::string progress_in_words(const Options& options, const Operation& operation, const Case& what,
                              const Position& position, int cycle) {
  std::string text(operation.name());
  if (operation.moves_tensors()) {
    text += fmt::format(" {} {}", name_of(what.dtype),
                        what.tensors.empty() ? format_size(what.bytes) : options.tensors_name);
  }
  if (operation.sums() && options.reductions.size() > 1)
    text += fmt::format(" {}", name_of_reduction(what.reduce_kind));
  if (operation.is_copy()) {
    text += fmt::format(" {} to {}", what.root, what.partner);
  } else if (operation.has_root() && !options.root) {
    text += fmt::format(" root {}", what.root);
  }
  if (operation.cuts_dimension() && options.dims.size() > 1) text += fmt::format(" dim {}", what.dim);
  text += fmt::format(", row {} of {}", position.number, position.of);
  if (options.cycles == 0) {
    text += fmt::format(", cycle {}", cycle);
  } else if (options.cycles > 1) {
    text += fmt::format(", cycle {} of {}", cycle, options.cycles);
  }
  return text + " ...";
}

void TablePrinter::start_operation(const Operation& operation) {
  choice_.clear();
  output_.print(operation.is_copy() ? fmt::format("#\n# {}\n", operation.name())
                                    : format_column_titles(std::string(operation.name()), columns_));
}

void TablePrinter::start_cycle(int cycle) {
  cycle_ = cycle;
  if (options_.cycles != 1) output_.print(fmt::format("#\n# cycle {}\n", cycle));
}

void TablePrinter::start_row(const Operation& operation, const Case& what, const Position& position) {
  progress_.show(progress_in_words(options_, operation, what, position, cycle_));
}

void TablePrinter::finish_row(const Operation& operation, const Row& row) {
  progress_.clear();
  if (operation.is_copy()) {
    pairs_.push_back(row);
    return;
  }
  if (row.peer.empty()) {
    if (const std::string choice = format_choice(row); choice != choice_) {
      output_.print(choice);
      choice_ = choice;
    }
  }
  output_.print(columns_.line(row));
}

void TablePrinter::skip_row(const Skipped& skipped) {
  progress_.clear();
  output_.print(format_skipped(skipped));
}

void TablePrinter::finish_operation(const Operation&) {
  progress_.clear();
  for (const DType dtype : options_.dtypes) {
    std::vector<Row> rows;
    for (const Row& row : pairs_) {
      if (row.dtype == dtype) rows.push_back(row);
    }
    output_.print(format_pair_matrices(rows));
    if (!options_.baseline_file.empty() && !rows.empty())
      output_.print(format_pairs_over_baseline(rows, options_.tolerance));
  }
  pairs_.clear();
}

}  // namespace tutti::perf
