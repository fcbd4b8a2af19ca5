// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/visible_devices.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>
#include <vector>

namespace tutti::backend {
namespace {

constexpr std::string_view uuid_start = "GPU-";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  for (;;) {
    const std::size_t comma = list.find(',');
    entries.push_back(trimmed(list.substr(0, comma)));
    if (comma == std::string_view::npos) return entries;
    list.remove_prefix(comma + 1);
  }
}

/// The number that is all of `text`; nothing if it is anything else.
std::optional<long> number_in(std::string_view text) {
  long number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::optional<int> count_visible(std::span<const std::string> uuids, const char* visible) {
  if (visible == nullptr) return static_cast<int>(uuids.size());
  const std::string_view list(visible);
  if (list.empty()) return 0;
  const std::vector<std::string_view> entries = entries_of(list);
  const bool by_uuid = entries.front().starts_with(uuid_start);
  std::vector<std::size_t> named;
  for (const std::string_view entry : entries) {
    std::size_t gpu = uuids.size();
    if (by_uuid) {
      if (!entry.starts_with(uuid_start)) return std::nullopt;
      const auto is_named = [entry](const std::string& uuid) { return uuid.starts_with(entry); };
      if (std::ranges::count_if(uuids, is_named) > 1) return std::nullopt;
      gpu = static_cast<std::size_t>(std::ranges::find_if(uuids, is_named) - uuids.begin());
    } else {
      const std::optional<long> index = number_in(entry);
      if (!index) return std::nullopt;
      if (*index >= 0) gpu = static_cast<std::size_t>(*index);
    }
    if (gpu >= uuids.size()) break;
    if (std::ranges::find(named, gpu) != named.end()) return std::nullopt;
    named.push_back(gpu);
  }
  return static_cast<int>(named.size());
}

}  // namespace tutti::backend
