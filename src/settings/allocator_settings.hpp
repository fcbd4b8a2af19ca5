// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

namespace tutti {

/// What `TUTTI_ALLOC_CONF` says; see `tutti/memory.hpp`.
struct AllocatorSettings {
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  std::size_t max_split_bytes = no_limit;   ///< blocks this long and longer are not cut
  double garbage_collection_threshold = 0;  ///< of what may be reserved; 0: none is collected
  bool has_expandable_segments = false;
};

/// The settings, or what is wrong with `text`: what was expected where.
[[nodiscard]] std::variant<AllocatorSettings, std::string> parse_allocator_settings(std::string_view text);

}  // namespace tutti
