// SPDX-License-Identifier: Apache-2.0
#include "launched_as.hpp"

#include <charconv>
#include <string_view>

namespace tutti::perf {
namespace {

struct Variables {
  const char* size;
  const char* rank;
  int fewest;  ///< fewer processes than these do not count as launched
};

// Slurm's are those of a step: a batch script has SLURM_NTASKS and SLURM_PROCID too, and is alone. A step of
// one task is often an interactive shell.
constexpr Variables known[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 1},
    {"PMI_SIZE", "PMI_RANK", 1},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", 1},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 2},
};

std::optional<int> number(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

}  // namespace

LaunchedAs launched_as(const std::function<const char*(const char*)>& variable) {
  for (const Variables& names : known) {
    const std::optional<int> size = number(variable(names.size));
    const std::optional<int> rank = number(variable(names.rank));
    if (size && rank && *size >= names.fewest) return {true, size, rank};
  }
  const std::optional<int> rank = number(variable("PMIX_RANK"));
  return {rank.has_value(), std::nullopt, rank};
}

}  // namespace tutti::perf
