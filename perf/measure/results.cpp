// SPDX-License-Identifier: Apache-2.0
#include "perf/measure/results.hpp"

#include "perf/operations/reductions.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {

std::uint64_t Row::wrong() const noexcept {
  std::uint64_t total = 0;
  if (out_of_place) total += out_of_place->wrong.value_or(0);
  if (in_place) total += in_place->wrong.value_or(0);
  return total;
}

std::string Row::in_words() const {
  std::string text = peer.empty() ? operation : contender() + ": " + operation;
  if (bytes == 0) return text;  // as of a barrier
  text += tensor_list.empty() ? " " + format_size(bytes) : " " + tensor_list;
  text += fmt::format(" {}", name_of(dtype));
  if (redop && *redop != ReduceKind::sum) text += fmt::format(" {}", name_of_reduction(*redop));
  if (root >= 0) text += fmt::format(" root {}", root);
  if (partner >= 0) text += fmt::format(" to {}", partner);
  if (dim != 0) text += fmt::format(" dim {}", dim);
  return text;
}

void compare_with_peers(const Row& row, std::vector<Row>& peer_rows) noexcept {
  for (const auto placement : {&Row::out_of_place, &Row::in_place}) {
    Measurement* fastest = nullptr;
    for (Row& peer_row : peer_rows) {
      const std::optional<Measurement>& own = row.*placement;
      std::optional<Measurement>& other = peer_row.*placement;
      if (!own || !other) continue;
      other->over_tutti.reset();
      other->is_fastest_peer = false;
      if (own->wrong.value_or(0) != 0 || other->wrong.value_or(0) != 0) continue;
      other->over_tutti = other->microseconds() / own->microseconds();
      if (fastest == nullptr || *other->over_tutti < *fastest->over_tutti) fastest = &*other;
    }
    if (fastest != nullptr) fastest->is_fastest_peer = true;
  }
}

std::optional<double> algorithm_bandwidth(const Row& row, const Measurement& measurement) noexcept {
  const double microseconds = measurement.microseconds();
  if (row.device_count < 2 || row.bytes == 0 || microseconds <= 0.0) return std::nullopt;
  return static_cast<double>(row.bytes) / microseconds * 1e-3;
}

std::optional<double> bus_bandwidth(const Row& row, const Measurement& measurement) noexcept {
  const std::optional<double> bandwidth = algorithm_bandwidth(row, measurement);
  return bandwidth ? std::optional(*bandwidth * row.bus_factor) : std::nullopt;
}

bool Results::are_any_checked() const noexcept {
  return std::ranges::any_of(rows, &Row::is_checked);
}

std::uint64_t Results::wrong() const noexcept {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += row.wrong();
  return total;
}

std::uint64_t Results::own_wrong() const noexcept {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += row.peer.empty() ? row.wrong() : 0;
  return total;
}

std::string Results::who_is_wrong() const {
  std::vector<std::pair<std::string, std::uint64_t>> all;
  for (const Row& row : rows) {
    if (row.wrong() == 0) continue;
    const std::string who = row.peer.empty() ? "tutti" : row.contender();
    auto known = std::ranges::find(all, who, &std::pair<std::string, std::uint64_t>::first);
    if (known == all.end()) known = all.insert(all.end(), {who, 0});
    known->second += row.wrong();
  }
  std::string text;
  for (const auto& [who, wrong] : all) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", who, wrong);
  return text;
}

std::optional<double> Results::average_bus_bandwidth() const noexcept {
  double sum = 0.0;
  int count = 0;
  for (const Row& row : rows) {
    if (!row.peer.empty()) continue;
    for (const auto* measurement : {&row.out_of_place, &row.in_place}) {
      if (!*measurement) continue;
      const std::optional<double> bandwidth = bus_bandwidth(row, **measurement);
      if (!bandwidth) continue;
      sum += *bandwidth;
      ++count;
    }
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

std::size_t Results::out_of_memory() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count(skipped, Skipped::Cause::out_of_memory, &Skipped::cause));
}

ExitStatus status_of(const Results& results) noexcept {
  if (results.own_wrong() != 0) return wrong_data;
  if (results.out_of_memory() != 0) return run_failed;
  if (results.baseline && !compare_with_baseline(results).is_passed()) return is_slower;
  return results.wrong() != 0 ? peer_is_wrong : all_right;
}

}  // namespace tutti::perf
