// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// These functions tell how long lines of text may be, in letters, and break text into such lines.
namespace tutti::perf {

/// Returns the width of a table: on a terminal what COLUMNS says, or else the terminal's own width. In pipes
/// and files, which programs read by the number of the column, there is no limit; nor is there one for ranks
/// on a terminal that does not tell its width: Open MPI's mpirun, for one, gives ranks such a terminal even
/// where its own output goes to a pipe.
[[nodiscard]] std::size_t table_width(bool are_ranks);
/// Returns the width of running text: what COLUMNS says, or else the terminal's width, 80 in pipes and files;
/// 120 at most, as longer lines are hard to read.
[[nodiscard]] std::size_t text_width();

/// Breaks `text` between words into lines of at most `width` letters; a longer word has a longer line.
/// Neighbouring lines are one paragraph, except those that begin with two spaces: each of these stays a line
/// of its own, and if it is too long, goes on below its last column.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width);

}  // namespace tutti::perf
