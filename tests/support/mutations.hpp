// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/random.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Generates malformed input.
namespace tutti::test {

/// Lists numbers at and beyond the limits of every integer type, and texts that are not numbers.
inline constexpr std::array<std::string_view, 15> strange_numbers{
    "0",          "-1",         "00",         "1e9",         "0x10",
    "2147483647", "2147483648", "4294967296", "1.5",         "9223372036854775807",
    "nan",        "+1",         "1 000",      "-2147483649", "18446744073709551616"};

/// Returns these texts together with `words`.
inline std::vector<std::string_view> with_strange_numbers(std::vector<std::string_view> words) {
  words.insert(words.end(), strange_numbers.begin(), strange_numbers.end());
  return words;
}

/// Returns `text` with one or more random changes: bytes and `words` inserted, parts removed or doubled, the
/// rest cut off. It contains no zero bytes.
inline std::string mutated(std::string text, Random& random, const std::vector<std::string_view>& words) {
  const auto below = [&random](std::size_t bound) {
    return static_cast<std::size_t>(random.next() % std::max<std::size_t>(bound, 1));
  };
  do {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = 1 + below(8);
    switch (random.between(0, 6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random.between(1, 255));
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(random.between(1, 255)));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size() + 1), length));
        break;
      case 4:
        text.resize(at);
        break;
      default:
        text.replace(at, below(2) * length, random.pick(words));
        break;
    }
  } while (random.one_in(2));
  return text;
}

}  // namespace tutti::test
