// SPDX-License-Identifier: Apache-2.0
#include "settings/allocator_settings.hpp"

#include "base/quoted_text.hpp"

#include <charconv>
#include <optional>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::size_t least_split_mib = 21;  // above the size of the segments that requests share
constexpr std::size_t most_split_mib = std::size_t{1} << 40;

template <class Number>
std::optional<Number> whole_number_in(std::string_view text) {
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Reads one setting. Returns what was expected if the value is invalid, else nothing.
std::optional<std::string> read_setting(std::string_view name, std::string_view value,
                                        AllocatorSettings& settings) {
  if (name == "max_split_size_mb") {
    const auto mib = whole_number_in<std::size_t>(value);
    if (!mib || *mib < least_split_mib || *mib > most_split_mib)
      return fmt::format("max_split_size_mb to be a number of MiB of {} or more", least_split_mib);
    settings.max_split_bytes = *mib << 20U;
    return std::nullopt;
  }
  if (name == "garbage_collection_threshold") {
    const auto part = whole_number_in<double>(value);
    const bool is_part = part && *part > 0 && *part < 1;
    if (!is_part) return "garbage_collection_threshold to be a number between 0 and 1";
    settings.garbage_collection_threshold = *part;
    return std::nullopt;
  }
  if (name == "expandable_segments") {
    if (value != "True" && value != "False") return "expandable_segments to be True or False";
    settings.has_expandable_segments = value == "True";
    return std::nullopt;
  }
  return fmt::format("max_split_size_mb, garbage_collection_threshold or expandable_segments, not \"{}\"",
                     quoted_text(name, 40));
}

}  // namespace

std::variant<AllocatorSettings, std::string> parse_allocator_settings(std::string_view text) {
  AllocatorSettings settings;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view setting = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const std::size_t colon = setting.find(':');
    if (colon == std::string_view::npos) return "name:value pairs with commas between them";
    if (auto expected = read_setting(setting.substr(0, colon), setting.substr(colon + 1), settings))
      return *expected;
  }
  return settings;
}

}  // namespace tutti
