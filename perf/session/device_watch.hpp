// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"
#include "tutti/device.hpp"
#include "tutti/telemetry.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Records the state of devices during measurements.
namespace tutti::perf {

/// A device's state at one point in time. A member is empty if it is not known, as for virtual devices.
struct DeviceState {
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  std::optional<double> power_w;
  std::optional<double> temperature_c;
};

/// A device's state during a run.
struct DeviceHealth {
  DeviceState before;
  DeviceState after;
  /// The reasons why the clocks were lowered right after measurements; nothing if that is not known.
  std::optional<ThrottleReasons> throttled;
};

/// Returns the names of the reasons that apply: "power", "thermal" and "hardware".
[[nodiscard]] std::vector<std::string> names_of(const ThrottleReasons& reasons);

/// Watches the devices of a process.
class DeviceWatch {
 public:
  explicit DeviceWatch(std::vector<Device> devices)
      : devices_(std::move(devices)), healths_(devices_.size()) {}

  /// Records the state before measurements.
  void start();
  /// Records the state right after a measurement, which does not wait for this.
  void look();
  /// Records the state after all measurements, and returns that of every rank's devices, in order of ranks.
  /// All ranks have the same number of devices. Collective.
  [[nodiscard]] std::vector<DeviceHealth> finish(Processes& processes);

 private:
  std::vector<Device> devices_;
  std::vector<DeviceHealth> healths_;
};

}  // namespace tutti::perf
