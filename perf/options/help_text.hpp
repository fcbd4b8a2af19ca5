// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace tutti::perf {

/// Writes the help page in lines of at most so many letters: options in one column, what they do in another,
/// or below them where there is no room beside.
class HelpText final : public CLI::Formatter {
 public:
  explicit HelpText(std::size_t width) : width_(width) {}
  std::string make_description(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  std::size_t width_;
};

}  // namespace tutti::perf
