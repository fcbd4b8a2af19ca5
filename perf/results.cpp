#include "results.hpp"

namespace tutti::perf {

std::uint64_t Row::wrong() const noexcept {
  std::uint64_t total = 0;
  if (out_of_place) total += out_of_place->wrong.value_or(0);
  if (in_place) total += in_place->wrong.value_or(0);
  return total;
}

double algorithm_bandwidth(const Row& row, const Measurement& measurement, Headline headline) noexcept {
  const double microseconds = measurement.microseconds(headline);
  return microseconds > 0.0 ? static_cast<double>(row.bytes) / microseconds * 1e-3 : 0.0;
}

double bus_bandwidth(const Row& row, const Measurement& measurement, Headline headline) noexcept {
  return algorithm_bandwidth(row, measurement, headline) * row.bus_factor;
}

std::uint64_t Results::wrong() const noexcept {
  std::uint64_t total = 0;
  for (const Row& row : rows) total += row.wrong();
  return total;
}

double Results::average_bus_bandwidth(Headline headline) const noexcept {
  double sum = 0.0;
  int count = 0;
  for (const Row& row : rows) {
    if (!row.peer.empty()) continue;
    for (const auto* measurement : {&row.out_of_place, &row.in_place}) {
      if (!*measurement) continue;
      sum += bus_bandwidth(row, **measurement, headline);
      ++count;
    }
  }
  return count == 0 ? 0.0 : sum / count;
}

}  // namespace tutti::perf
