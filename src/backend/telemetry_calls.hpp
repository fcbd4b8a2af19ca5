// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/telemetry.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti::backend {

/// A quantity that can be read from a device while it works; units as in `tutti/telemetry.hpp`.
enum class Gauge : std::uint8_t {
  utilization,
  memory_usage,
  temperature,
  power_draw,
  clock_rate,
  memory_clock_rate
};

/// Returns the name of the public function that reads it.
[[nodiscard]] constexpr std::string_view name_of(Gauge gauge) noexcept {
  switch (gauge) {
    case Gauge::utilization:
      return "utilization";
    case Gauge::memory_usage:
      return "memory_usage";
    case Gauge::temperature:
      return "temperature";
    case Gauge::power_draw:
      return "power_draw";
    case Gauge::clock_rate:
      return "clock_rate";
    case Gauge::memory_clock_rate:
      return "memory_clock_rate";
  }
  return "unknown";
}

/// Reads the state of devices, whichever process uses them. Throws Error(unsupported) if the system does not
/// provide it.
class TelemetryCalls {
 public:
  TelemetryCalls(const TelemetryCalls&) = delete;
  TelemetryCalls& operator=(const TelemetryCalls&) = delete;

  [[nodiscard]] virtual int read_gauge(int device, Gauge gauge) = 0;
  [[nodiscard]] virtual ThrottleReasons throttle_reasons(int device) = 0;
  [[nodiscard]] virtual std::vector<GpuProcess> processes_on(int device) = 0;

 protected:
  TelemetryCalls() = default;
  ~TelemetryCalls() = default;
};

}  // namespace tutti::backend
