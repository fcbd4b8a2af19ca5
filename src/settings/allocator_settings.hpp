// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <variant>

namespace tutti {

/// Holds the settings of `TUTTI_ALLOC_CONF`; see `tutti/memory.hpp`.
struct AllocatorSettings {
  static constexpr std::size_t no_limit = std::numeric_limits<std::size_t>::max();

  std::size_t max_split_bytes = no_limit;   ///< blocks of this size and above are not cut
  double garbage_collection_threshold = 0;  ///< fraction of the memory that may be reserved; 0: no collection
  bool has_expandable_segments = false;
};

/// Returns the settings, or the error in `text`: what was expected where.
[[nodiscard]] std::variant<AllocatorSettings, std::string> parse_allocator_settings(std::string_view text);

}  // namespace tutti
