// SPDX-License-Identifier: Apache-2.0
#include "perf/report/width.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <system_error>

#include <sys/ioctl.h>
#include <unistd.h>

namespace tutti::perf {
namespace {

constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
constexpr std::size_t usual_width = 80;
constexpr std::size_t widest_text = 120;

/// Reads the variable COLUMNS; returns nothing if it is no number above 0.
std::optional<std::size_t> columns_of_environment() {
  const char* const columns = std::getenv("COLUMNS");
  if (columns == nullptr) return std::nullopt;
  std::size_t width = 0;
  const std::string_view text = columns;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  if (error != std::errc() || end != text.data() + text.size() || width == 0) return std::nullopt;
  return width;
}

/// Returns the width of the terminal that the standard output is, if it is one and tells its width.
std::optional<std::size_t> columns_of_terminal() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

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

std::size_t table_width(bool are_ranks) {
  const auto terminal = columns_of_terminal();
  if (isatty(STDOUT_FILENO) != 1 || (are_ranks && !terminal)) return unlimited;
  const auto width = columns_of_environment();
  return width ? *width : terminal.value_or(unlimited);
}

std::size_t text_width() {
  const auto width = columns_of_environment();
  return std::min(width ? *width : columns_of_terminal().value_or(usual_width), widest_text);
}

std::string wrapped(std::string_view text, std::size_t width) {
  std::string result;
  Lines lines(result, width);
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

}  // namespace tutti::perf
