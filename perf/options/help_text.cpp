// SPDX-License-Identifier: Apache-2.0
#include "perf/options/help_text.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t width_of_lines = 80;
constexpr std::size_t width_of_names = 30;
constexpr std::size_t indent_below = 6;

/// Appends words to lines of at most `width` letters; those after the first begin with `indent` spaces.
class Lines {
 public:
  Lines(std::string& text, std::size_t width) : text_(text), width_(width) {}
  void begin(std::string_view head, std::size_t indent) {
    text_ += head;
    used_ = head.size();
    indent_ = indent;
    is_empty_ = true;
  }
  void add(std::string_view word) {
    if (!is_empty_ && used_ + 1 + word.size() > width_) {
      text_ += '\n' + std::string(indent_, ' ');
      used_ = indent_;
      is_empty_ = true;
    }
    if (!is_empty_) text_ += ' ';
    used_ += word.size() + (is_empty_ ? 0 : 1);
    text_ += word;
    is_empty_ = false;
  }

 private:
  std::string& text_;
  std::size_t width_;
  std::size_t used_ = 0;
  std::size_t indent_ = 0;
  bool is_empty_ = true;  ///< has no word yet
};

void add_words(Lines& lines, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(' '), words.size());
    if (end > 0) lines.add(words.substr(0, end));
    words.remove_prefix(std::min(end + 1, words.size()));
  }
}

/// Finds where the last column of a line begins, which two spaces or more separate from those before it.
std::size_t last_column_of(std::string_view line) {
  const std::size_t gap = line.rfind("  ");
  return std::min(line.find_first_not_of(' ', gap), line.size());
}

}  // namespace

std::string wrapped(std::string_view text) {
  std::string result;
  Lines lines(result, width_of_lines);
  bool is_in_paragraph = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const bool is_column = line.starts_with("  ");
    const bool goes_on = is_in_paragraph && !is_column && !line.empty();
    if (!goes_on && !result.empty()) result += '\n';
    is_in_paragraph = !is_column && !line.empty();
    const std::size_t indent = is_column ? last_column_of(line) : 0;
    if (!goes_on) lines.begin(line.substr(0, indent), indent);
    add_words(lines, line.substr(indent));
  }
  return result;
}

std::string HelpText::make_description(const CLI::App* app) const {
  return wrapped(app->get_description()) + "\n\n";
}

std::string HelpText::make_option(const CLI::Option* option, bool is_positional) const {
  const std::string name =
      fmt::format("  {} {}", option->get_name(is_positional, !is_positional), option->get_type_name());
  const bool is_beside = name.size() + 2 <= width_of_names;
  const std::string line =
      is_beside ? fmt::format("{:<{}}{}", name, width_of_names, option->get_description())
                : fmt::format("{}\n{:{}}{}", name, "", indent_below, option->get_description());
  return wrapped(line) + "\n";
}

std::string HelpText::make_footer(const CLI::App* app) const {
  return wrapped(app->get_footer()) + "\n";
}

}  // namespace tutti::perf
