// SPDX-License-Identifier: Apache-2.0
#include "perf/session/device_watch.hpp"

#include "perf/session/timing.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

namespace tutti::perf {
namespace {

/// What `question` says of a device; nothing where nobody tells it.
template <class Question>
auto told(Question question, Device device) -> std::optional<decltype(question(device))> {
  try {
    return question(device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    return std::nullopt;
  }
}

DeviceState state_of(Device device) {
  DeviceState state{.sm_clock_mhz = told(clock_rate, device),
                    .memory_clock_mhz = told(memory_clock_rate, device),
                    .power_w = told(power_draw, device),
                    .temperature_c = told(temperature, device)};
  if (state.power_w) *state.power_w /= 1000.0;
  return state;
}

constexpr std::optional<double> DeviceState::*figures[] = {
    &DeviceState::sm_clock_mhz, &DeviceState::memory_clock_mhz, &DeviceState::power_w,
    &DeviceState::temperature_c};
constexpr bool ThrottleReasons::*reasons[] = {&ThrottleReasons::power, &ThrottleReasons::thermal,
                                              &ThrottleReasons::hardware};
constexpr const char* names_of_reasons[] = {"power", "thermal", "hardware"};
constexpr double untold = std::numeric_limits<double>::quiet_NaN();

/// As numbers, `untold` for nothing; and back.
std::vector<double> encode(const std::vector<DeviceHealth>& healths) {
  std::vector<double> numbers;
  for (const DeviceHealth& health : healths) {
    for (const DeviceState* const state : {&health.before, &health.after}) {
      for (const auto figure : figures) numbers.push_back((state->*figure).value_or(untold));
    }
    for (const auto reason : reasons)
      numbers.push_back(health.throttled ? double((*health.throttled).*reason) : untold);
  }
  return numbers;
}

std::vector<DeviceHealth> decode(const std::vector<double>& numbers) {
  std::vector<DeviceHealth> healths;
  for (auto number = numbers.begin(); number != numbers.end();) {
    DeviceHealth& health = healths.emplace_back();
    const auto next = [&number] {
      const double value = *number++;
      return std::isnan(value) ? std::nullopt : std::optional(value);
    };
    for (DeviceState* const state : {&health.before, &health.after}) {
      for (const auto figure : figures) state->*figure = next();
    }
    for (const auto reason : reasons) {
      const std::optional<double> value = next();
      if (!value) continue;
      if (!health.throttled) health.throttled.emplace();
      (*health.throttled).*reason = *value != 0.0;
    }
  }
  return healths;
}

}  // namespace

std::vector<std::string> names_of(const ThrottleReasons& found) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < std::size(reasons); ++i) {
    if (found.*reasons[i]) names.emplace_back(names_of_reasons[i]);
  }
  return names;
}

void DeviceWatch::start() {
  for (std::size_t i = 0; i < devices_.size(); ++i) healths_[i].before = state_of(devices_[i]);
}

void DeviceWatch::look() {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const std::optional<ThrottleReasons> now = told(throttle_reasons, devices_[i]);
    if (!now) continue;
    std::optional<ThrottleReasons>& all = healths_[i].throttled;
    if (!all) all.emplace();
    for (const auto reason : reasons) (*all).*reason |= (*now).*reason;
  }
}

std::vector<DeviceHealth> DeviceWatch::finish(Processes& processes) {
  for (std::size_t i = 0; i < devices_.size(); ++i) healths_[i].after = state_of(devices_[i]);
  std::vector<DeviceHealth> all;
  for (const std::vector<double>& numbers : gather_numbers(encode(healths_), processes)) {
    const std::vector<DeviceHealth> healths = decode(numbers);
    all.insert(all.end(), healths.begin(), healths.end());
  }
  return all;
}

}  // namespace tutti::perf
