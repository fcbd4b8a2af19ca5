// SPDX-License-Identifier: Apache-2.0
#include "perf/session/device_watch.hpp"

#include "tutti/error.hpp"

#include <cstddef>

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

constexpr std::pair<bool ThrottleReasons::*, const char*> reasons[] = {
    {&ThrottleReasons::power, "power"},
    {&ThrottleReasons::thermal, "thermal"},
    {&ThrottleReasons::hardware, "hardware"}};

}  // namespace

std::vector<std::string> names_of(const ThrottleReasons& found) {
  std::vector<std::string> names;
  for (const auto& [reason, name] : reasons) {
    if (found.*reason) names.emplace_back(name);
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
    for (const auto& [reason, name] : reasons) (*all).*reason |= (*now).*reason;
  }
}

std::vector<DeviceHealth> DeviceWatch::finish(Processes& processes) {
  for (std::size_t i = 0; i < devices_.size(); ++i) healths_[i].after = state_of(devices_[i]);
  std::vector<DeviceHealth> all;
  for (const std::vector<DeviceHealth>& healths : gather_values<DeviceHealth>(healths_, processes))
    all.insert(all.end(), healths.begin(), healths.end());
  return all;
}

}  // namespace tutti::perf
