// SPDX-License-Identifier: Apache-2.0
#include "perf/beside/contention.hpp"

#include "perf/session/statistics.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>

namespace tutti::perf {
namespace {

constexpr int warm_up_units = 3;
constexpr int most_units = 4096;
/// Of work that is to cover other work, in terms of what it takes alone.
constexpr double cover = 2;

void wait_for(const Contender& contender) {
  for (const Stream& stream : contender.streams) stream.synchronize();
}

void enqueue_units(const Contender& contender, int units) {
  for (int unit = 0; unit < units; ++unit) contender.enqueue();
}

/// Marks on all streams of some work.
class Marks {
 public:
  explicit Marks(const Contender& contender) {
    for (const Stream& stream : contender.streams) {
      events_.emplace_back(EventOptions{.enable_timing = true});
      events_.back().record(stream);
    }
  }
  /// To `later` ones of the same devices, by device.
  [[nodiscard]] std::vector<double> microseconds_to(const Marks& later) const {
    std::vector<double> times;
    for (std::size_t i = 0; i < events_.size(); ++i)
      times.push_back(1e3 * static_cast<double>(events_[i].elapsed_time(later.events_[i])));
    return times;
  }

 private:
  std::vector<Event> events_;
};

double unit_time(const std::vector<double>& times, int units) {
  return *std::ranges::max_element(times) / units;
}

double time_alone(const Contender& contender, int units) {
  wait_for(contender);
  const Marks begin(contender);
  enqueue_units(contender, units);
  const Marks end(contender);
  wait_for(contender);
  return unit_time(begin.microseconds_to(end), units);
}

int units_for(double time, double unit) {
  if (unit <= 0) return most_units;
  return static_cast<int>(std::clamp(std::ceil(time / unit), 1.0, static_cast<double>(most_units)));
}

/// Nothing if the other work was over first on any device.
std::optional<double> time_beside(const Contender& measured, int units, const Contender& other,
                                  int other_units) {
  const Marks other_begin(other);
  enqueue_units(other, other_units);
  const Marks other_end(other);
  const Marks begin(measured);
  enqueue_units(measured, units);
  const Marks end(measured);
  wait_for(measured);
  wait_for(other);
  const std::vector<double> until_end = other_begin.microseconds_to(end);
  const std::vector<double> until_other_end = other_begin.microseconds_to(other_end);
  for (std::size_t i = 0; i < until_end.size(); ++i) {
    if (until_other_end[i] < until_end[i]) return std::nullopt;
  }
  return unit_time(begin.microseconds_to(end), units);
}

}  // namespace

ContendedTimes measure_contention(const Contender& measured, const Contender& other, int runs,
                                  double run_us) {
  enqueue_units(measured, warm_up_units);
  enqueue_units(other, warm_up_units);
  const int units = units_for(run_us, time_alone(measured, warm_up_units));
  const double other_unit = time_alone(other, warm_up_units);
  std::vector<double> alone;
  std::vector<double> beside;
  for (int run = 0; run < runs; ++run) {
    alone.push_back(time_alone(measured, units));
    int other_units = units_for(cover * alone.back() * units, other_unit);
    std::optional<double> time = time_beside(measured, units, other, other_units);
    // The host may be slow to queue what is measured: more of the other work gives it time.
    while (!time && other_units < most_units) {
      other_units = std::min(2 * other_units, most_units);
      time = time_beside(measured, units, other, other_units);
    }
    if (!time) {
      throw Error(
          ErrorCode::internal,
          "contention: what is measured goes on after the other work has ended, however much of that is "
          "queued; expected work whose units take the devices longer than they take the host to queue");
    }
    beside.push_back(*time);
  }
  return {.alone = summarize(std::move(alone)).median, .beside = summarize(std::move(beside)).median};
}

}  // namespace tutti::perf
