// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace tutti::perf {

/// Breaks `text` between words into lines of at most 80 letters; a longer word has a longer line.
/// Neighbouring lines are one paragraph, except those that begin with two spaces: each of these stays a line
/// of its own, and if it is too long, goes on below its last column.
[[nodiscard]] std::string wrapped(std::string_view text);

/// Writes the help page: options in one column, what they do in another, or below them where there is no room
/// beside.
class HelpText final : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_footer(const CLI::App* app) const override;
};

}  // namespace tutti::perf
