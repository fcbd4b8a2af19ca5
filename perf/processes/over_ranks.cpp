// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/over_ranks.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>

namespace tutti::perf {
namespace {

double combined(const std::vector<double>& times, OverRanks how) {
  switch (how) {
    case OverRanks::rank0:
      break;
    case OverRanks::average:
      return std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
    case OverRanks::minimum:
      return std::ranges::min(times);
    case OverRanks::maximum:
      return std::ranges::max(times);
  }
  return times.front();
}

}  // namespace

std::string_view name_of(OverRanks how) noexcept {
  switch (how) {
    case OverRanks::rank0:
      return "rank0";
    case OverRanks::average:
      return "average";
    case OverRanks::minimum:
      return "min";
    case OverRanks::maximum:
      return "max";
  }
  return "unknown";
}

std::vector<std::vector<double>> gather_numbers(std::span<const double> mine, Processes& processes) {
  std::string bytes(mine.size_bytes(), '\0');
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<std::vector<double>> by_rank;
  for (const std::string& other : processes.gather(bytes)) {
    std::vector<double>& numbers = by_rank.emplace_back(mine.size());
    std::memcpy(numbers.data(), other.data(), bytes.size());
  }
  return by_rank;
}

std::vector<double> combine(const std::vector<std::vector<double>>& by_rank, OverRanks how) {
  std::vector<double> result;
  for (std::size_t column = 0; column < by_rank.front().size(); ++column) {
    std::vector<double> times;
    for (const std::vector<double>& rank : by_rank) times.push_back(rank[column]);
    result.push_back(combined(times, how));
  }
  return result;
}

std::optional<SlowestRank> slowest_of(std::span<const double> by_rank) {
  if (by_rank.size() < 2) return std::nullopt;
  const auto slowest = std::ranges::max_element(by_rank);
  return SlowestRank{.rank = static_cast<int>(slowest - by_rank.begin()),
                     .over_fastest = *slowest / std::ranges::min(by_rank)};
}

}  // namespace tutti::perf
