// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>

namespace tutti::perf {

/// Finds what a table of pairs has for a key; nothing if it has none.
template <class Table, class Key>
[[nodiscard]] constexpr auto found_in(const Table& table, const Key& key) {
  const auto found = std::ranges::find(table, key, [](const auto& row) { return row.first; });
  return found == std::end(table) ? std::nullopt : std::optional(found->second);
}

}  // namespace tutti::perf
