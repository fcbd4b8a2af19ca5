// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::perf {

/// Of names that there are, the one that `text` most probably was meant to be: it begins with `text`, or is
/// different in few letters. Empty if none is like it. Capitals count as small letters.
[[nodiscard]] std::string nearest(std::string_view text, const std::vector<std::string>& names);

/// What to say of a name that there is not: "'flot' is not an element type: did you mean float32? Expected
/// ...". `meant` may be empty.
[[nodiscard]] std::string unknown_name(std::string_view text, std::string_view what, std::string_view meant,
                                       std::string_view expected);

/// `text` in small letters.
[[nodiscard]] std::string in_small_letters(std::string_view text);

}  // namespace tutti::perf
