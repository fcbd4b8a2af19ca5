// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti {

/// Lists ranks in words: "rank 1", "ranks 1, 2 and 5". Beyond 16 ranks, only the first 16 are listed and the
/// others are counted. No ranks give an empty text.
[[nodiscard]] inline std::string ranks_in_words(const std::vector<int>& ranks) {
  constexpr std::size_t most = 16;
  if (ranks.empty()) return {};
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  if (ranks.size() > most) {
    return fmt::format("ranks {} and {} others", fmt::join(ranks.begin(), ranks.begin() + most, ", "),
                       ranks.size() - most);
  }
  return fmt::format("ranks {} and {}", fmt::join(ranks.begin(), ranks.end() - 1, ", "), ranks.back());
}

}  // namespace tutti
