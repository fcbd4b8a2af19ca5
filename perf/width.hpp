// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

/// How long lines of text may be, in letters.
namespace tutti::perf {

/// The width of a table: on a terminal what COLUMNS says, or else the terminal's own width. In pipes and
/// files, which programs read by the number of the column, there is no limit; nor is there one for ranks on a
/// terminal that does not tell its width: launchers such as Open MPI's put one before what may be a pipe.
[[nodiscard]] std::size_t table_width(bool are_ranks);
/// The width of running text: what COLUMNS says, or else the terminal's width, 80 in pipes and files; 120 at
/// most, which can be read.
[[nodiscard]] std::size_t text_width();

/// `text` in lines of at most `width` letters, as far as words are short enough, between which it is broken.
/// Neighbouring lines are one paragraph, except those that begin with two spaces: each of these stays a line
/// of its own, which goes on below the last of its columns, where it is too long.
[[nodiscard]] std::string wrapped(std::string_view text, std::size_t width);

}  // namespace tutti::perf
