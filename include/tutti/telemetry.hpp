// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// Reports load, temperature, power and clocks of GPUs, whichever processes use them, from NVIDIA's
/// management library (NVML).
///
/// NVML is loaded by the first of these calls and finds a device by its PCI address. So devices are numbered
/// as everywhere in the library, respecting `CUDA_VISIBLE_DEVICES`. For a part of a GPU (MIG), values are
/// those of the whole GPU, as far as NVML reports them.
///
/// Each call queries NVML anew, takes some microseconds up to a millisecond, and waits for no work.
/// Thread-safe. All throw Error(invalid_argument) if there is no such device, and Error(unsupported), with
/// the reason, for virtual devices, if NVML is not installed, and for values that a GPU does not report.
namespace tutti {

/// Returns the percentage of time in which a kernel was running, over the past period of up to a second.
[[nodiscard]] TUTTI_EXPORT int utilization(Device device = Device::current());
/// Returns the percentage of that time in which device memory was being read or written. The amount of memory
/// in use is reported by `mem_get_info`.
[[nodiscard]] TUTTI_EXPORT int memory_usage(Device device = Device::current());
/// Returns the chip's temperature in degrees Celsius.
[[nodiscard]] TUTTI_EXPORT int temperature(Device device = Device::current());
/// Returns the power drawn by the whole board in milliwatts: the average over a second or the present value,
/// depending on the GPU.
[[nodiscard]] TUTTI_EXPORT int power_draw(Device device = Device::current());
/// Returns the current clock of the multiprocessors in MHz, as NVML reports it. (PyTorch documents its
/// function of this name in Hz.)
[[nodiscard]] TUTTI_EXPORT int clock_rate(Device device = Device::current());
/// Returns the current clock of the memory in MHz.
[[nodiscard]] TUTTI_EXPORT int memory_clock_rate(Device device = Device::current());

/// Reasons for which a GPU's clocks are lower than its work would allow. Idling and clocks that somebody has
/// set do not count.
struct ThrottleReasons {
  bool power = false;    ///< the board has reached its power limit
  bool thermal = false;  ///< the chip or its memory has become too hot
  bool hardware =
      false;  ///< the hardware has halved its clocks or more, because of heat or insufficient power
  [[nodiscard]] bool any() const noexcept { return power || thermal || hardware; }
  friend bool operator==(const ThrottleReasons&, const ThrottleReasons&) = default;
};
/// Returns the present reasons.
[[nodiscard]] TUTTI_EXPORT ThrottleReasons throttle_reasons(Device device = Device::current());

/// A process that uses a GPU.
struct GpuProcess {
  int id = 0;  ///< as NVML counts processes: inside a container the process may have another number
  std::optional<std::size_t> memory_bytes;  ///< of the device; empty if NVML may not report it
};
/// Returns the processes that compute on a device, in ascending order.
[[nodiscard]] TUTTI_EXPORT std::vector<GpuProcess> get_gpu_processes(Device device = Device::current());
/// Formats them as text for people, one line each: "device:0", then "process 4711 uses 512.0 MiB of its
/// memory" ("an unknown amount" if NVML may not report it), or "no processes are running".
[[nodiscard]] TUTTI_EXPORT std::string list_gpu_processes(Device device = Device::current());

}  // namespace tutti
