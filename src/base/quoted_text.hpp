// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

/// For messages: one line of at most `longest` characters, whatever others have written. What cannot be
/// printed is a question mark.
[[nodiscard]] inline std::string quoted_text(std::string_view text, std::size_t longest = 60) {
  constexpr std::string_view end = "...";
  std::string line(text.substr(0, longest));
  if (text.size() > longest) line.replace(longest - end.size(), end.size(), end);
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace tutti
