// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace tutti::perf {

/// A name and what it stands for.
template <class Value>
using Named = std::pair<std::string_view, Value>;

/// Finds what a table of pairs has for a key; nothing if it has none.
template <class Table, class Key>
[[nodiscard]] constexpr auto found_in(const Table& table, const Key& key) {
  const auto found = std::ranges::find(table, key, [](const auto& row) { return row.first; });
  return found == std::end(table) ? std::nullopt : std::optional(found->second);
}

/// Finds the first name that a table of names has for a value.
template <class Table, class Value>
[[nodiscard]] constexpr std::string_view name_in(const Table& table, const Value& value) {
  return std::ranges::find(table, value, [](const auto& row) { return row.second; })->first;
}

}  // namespace tutti::perf
