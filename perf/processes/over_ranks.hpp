// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

/// Combines the times that ranks take for the same operation.
namespace tutti::perf {

/// The way in which ranks' times are combined, in the order of nccl-tests' numbers.
enum class OverRanks : std::uint8_t { rank0, average, minimum, maximum };

/// Returns the name in options and files.
[[nodiscard]] std::string_view name_of(OverRanks how) noexcept;

/// Every rank's numbers, in order of ranks, on all of them. All ranks have the same count. Collective.
[[nodiscard]] std::vector<std::vector<double>> gather_numbers(std::span<const double> mine,
                                                              Processes& processes);

/// One number of each column of `by_rank`, whose rows are equally long.
[[nodiscard]] std::vector<double> combine(const std::vector<std::vector<double>>& by_rank, OverRanks how);

struct SlowestRank {
  int rank = 0;
  double over_fastest = 1.0;  ///< its time over that of the fastest rank
};
/// Returns the slowest rank, given a time of each; the first one of equal times. Nothing for fewer than two
/// ranks.
[[nodiscard]] std::optional<SlowestRank> slowest_of(std::span<const double> by_rank);

}  // namespace tutti::perf
