// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace tutti {

/// Returns `text`, which may come from users or other programs, as one printable line for a message: it is
/// cut to `longest` characters, and characters that cannot be printed become question marks.
[[nodiscard]] inline std::string quoted_text(std::string_view text, std::size_t longest = 60) {
  constexpr std::string_view end = "...";
  std::string line(text.substr(0, longest));
  if (text.size() > longest) line.replace(longest - end.size(), end.size(), end);
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

}  // namespace tutti
