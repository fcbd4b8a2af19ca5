// SPDX-License-Identifier: Apache-2.0
#include "perf/options/help_text.hpp"

#include "perf/report/width.hpp"

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t width_of_names = 30;
constexpr std::size_t least_beside = 30;  ///< the least width of descriptions beside the names
constexpr std::size_t indent_below = 6;

}  // namespace

std::string HelpText::make_description(const CLI::App* app) const {
  return wrapped(app->get_description(), width_) + "\n\n";
}

std::string HelpText::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string name =
      fmt::format("  {} {}", option->get_name(is_positional, !is_positional), option->get_type_name());
  const bool is_beside = width_ >= width_of_names + least_beside && name.size() + 2 <= width_of_names;
  const std::string line =
      is_beside ? fmt::format("{:<{}}{}", name, width_of_names, option->get_description())
                : fmt::format("{}\n{:{}}{}", name, "", indent_below, option->get_description());
  return wrapped(line, width_) + "\n";
}

std::string HelpText::make_footer(const CLI::App* app) const {
  return wrapped(app->get_footer(), width_) + "\n";
}

}  // namespace tutti::perf
