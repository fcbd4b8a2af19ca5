// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/same_arguments.hpp"

#include "perf/processes/usage_error.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace tutti::perf {

std::string arguments_of_all(std::span<const char* const> arguments) {
  constexpr std::string_view long_names[] = {"--output_file", "--baseline"};
  std::string mine;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    const bool is_file = std::ranges::find(long_names, name) != std::end(long_names);
    if (argument == "-J" || (is_file && name == argument)) {
      ++i;
    } else if (!is_file && !argument.starts_with("-J")) {
      mine += fmt::format(" {}", argument);
    }
  }
  return mine;
}

void require_same_arguments(std::span<const char* const> arguments, Processes& processes) {
  const std::vector<std::string> all = processes.gather(arguments_of_all(arguments));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw UsageError(
        fmt::format("rank {} was started with the arguments '{}', expected those of rank 0, '{}'", rank,
                    all[rank].empty() ? "" : all[rank].substr(1), all[0].empty() ? "" : all[0].substr(1)));
  }
}

}  // namespace tutti::perf
