// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/nearest.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

constexpr std::size_t least_letters_of_a_beginning = 3;

/// How many letters have to be put in, taken out, changed or swapped with their neighbour.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::vector<std::size_t> next(b.size() + 1, i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), last[j + 1] + 1, next[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        next[j + 1] = std::min(next[j + 1], before_last[j - 1] + 1);
    }
    before_last = std::move(last);
    last = std::move(next);
  }
  return last.back();
}

}  // namespace

std::string in_small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
  });
  return small;
}

std::string nearest(std::string_view text, const std::vector<std::string>& names) {
  constexpr std::size_t longest = 64;  // what is longer is no slip of a finger
  if (text.size() > longest) return "";
  const std::string typed = in_small_letters(text);
  std::string best;
  std::size_t fewest = typed.size() / 3 + 1;
  for (const std::string& name : names) {
    const bool is_its_beginning = typed.size() >= least_letters_of_a_beginning && name.starts_with(typed);
    const std::size_t changes = is_its_beginning ? 0 : distance(typed, name);
    if (changes >= fewest) continue;
    fewest = changes;
    best = name;
  }
  return best;
}

std::string unknown_name(std::string_view text, std::string_view what, std::string_view meant,
                         std::string_view expected) {
  if (meant.empty()) return fmt::format("'{}' is not {}: expected {}", text, what, expected);
  return fmt::format("'{}' is not {}: did you mean {}? Expected {}", text, what, meant, expected);
}

}  // namespace tutti::perf
