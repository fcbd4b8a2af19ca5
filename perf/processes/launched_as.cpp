// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/launched_as.hpp"

#include <charconv>
#include <string_view>

namespace tutti::perf {
namespace {

struct Variables {
  const char* size;
  const char* rank;
  int fewest;  ///< fewer processes than these do not count as launched
};

constexpr Variables of_mpi[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", 1},
    {"PMI_SIZE", "PMI_RANK", 1},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", 1},
};
// Slurm's are those of a step: a batch script has SLURM_NTASKS and SLURM_PROCID too, and is alone. A step of
// one task is often an interactive shell.
constexpr Variables of_slurm = {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", 2};

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
  const auto has = [&](const char* name) {
    const char* const value = variable(name);
    return value != nullptr && *value != '\0';
  };
  const auto has_all = [&](const Variables& names) {
    const std::optional<int> size = number(variable(names.size));
    return size && number(variable(names.rank)) && *size >= names.fewest;
  };
  const auto by = [&](Meeting meeting, const Variables& names) {
    return LaunchedAs{meeting, number(variable(names.size)), number(variable(names.rank))};
  };
  constexpr Variables of_torchrun = {"WORLD_SIZE", "RANK", 1};
  const bool are_set = has("RANK") && has("WORLD_SIZE");
  if (are_set && has("TORCHELASTIC_RUN_ID")) return by(Meeting::tcp, of_torchrun);
  for (const Variables& names : of_mpi) {
    if (has_all(names)) return by(Meeting::mpi, names);
  }
  if (const std::optional<int> rank = number(variable("PMIX_RANK")))
    return {Meeting::mpi, std::nullopt, rank};
  // A script's; containers often have these of one process.
  const bool are_several = has("WORLD_SIZE") && number(variable("WORLD_SIZE")) != 1;
  if (are_set && are_several) return by(Meeting::tcp, of_torchrun);
  if (has_all(of_slurm)) return by(Meeting::tcp, of_slurm);
  // A script's that has forgotten the rank, which is told when the ranks are to meet.
  return are_several && has("LOCAL_RANK") ? by(Meeting::tcp, of_torchrun) : LaunchedAs{};
}

}  // namespace tutti::perf
