// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"
#include "tutti/device.hpp"
#include "tutti/telemetry.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

/// How devices fare while they are measured.
namespace tutti::perf {

/// At one moment. Nothing: not told, as of virtual devices.
struct DeviceState {
  std::optional<double> sm_clock_mhz;
  std::optional<double> memory_clock_mhz;
  std::optional<double> power_w;
  std::optional<double> temperature_c;
};

/// In a run.
struct DeviceHealth {
  DeviceState before;
  DeviceState after;
  /// What has kept its clocks down whenever something had just been measured; nothing: not told.
  std::optional<ThrottleReasons> throttled;
};

/// "power", "thermal" and "hardware": those that are so.
[[nodiscard]] std::vector<std::string> names_of(const ThrottleReasons& reasons);

/// Watches the devices of a process.
class DeviceWatch {
 public:
  explicit DeviceWatch(std::vector<Device> devices)
      : devices_(std::move(devices)), healths_(devices_.size()) {}

  /// Before anything is measured.
  void start();
  /// Right after something has been measured, which does not wait for it.
  void look();
  /// After all; of every rank's devices, in order of ranks. All ranks have as many. Collective.
  [[nodiscard]] std::vector<DeviceHealth> finish(Processes& processes);

 private:
  std::vector<Device> devices_;
  std::vector<DeviceHealth> healths_;
};

}  // namespace tutti::perf
