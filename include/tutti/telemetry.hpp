// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

/// How GPUs fare, whichever processes use them, as NVIDIA's management library (NVML) tells it.
///
/// NVML is loaded by the first of these calls, and finds a device by its PCI address: so devices are numbered
/// as everywhere in the library, with regard to `CUDA_VISIBLE_DEVICES`. Of a part of a GPU (MIG) the whole
/// GPU is told, as far as NVML does so.
///
/// Each call asks anew, takes some microseconds up to a millisecond, and waits for no work. Thread-safe.
/// All throw Error(invalid_argument) if there is no such device, and Error(unsupported), with the reason, for
/// virtual devices, where NVML is not installed, and for what a GPU does not tell.
namespace tutti {

/// Per cent of the time in which a kernel was running, over a period of up to a second before.
[[nodiscard]] TUTTI_EXPORT int utilization(Device device = Device::current());
/// Per cent of that time in which memory of the device was being read or written. How much memory is taken
/// tells `mem_get_info`.
[[nodiscard]] TUTTI_EXPORT int memory_usage(Device device = Device::current());
/// Of the chip, in degrees Celsius.
[[nodiscard]] TUTTI_EXPORT int temperature(Device device = Device::current());
/// Of the whole board, in milliwatts; an average over a second or an instant, as GPUs differ.
[[nodiscard]] TUTTI_EXPORT int power_draw(Device device = Device::current());
/// Of the multiprocessors, now, in MHz, as NVML tells it; the documentation of a function of this name
/// elsewhere says Hz.
[[nodiscard]] TUTTI_EXPORT int clock_rate(Device device = Device::current());
/// Of the memory, now, in MHz.
[[nodiscard]] TUTTI_EXPORT int memory_clock_rate(Device device = Device::current());

/// What keeps the clocks of a GPU lower than its work would have them. Being idle and clocks that somebody
/// has set are none of it.
struct ThrottleReasons {
  bool power = false;    ///< the board has come to its limit of power
  bool thermal = false;  ///< the chip or its memory has become too hot
  bool hardware =
      false;  ///< the hardware itself has slowed down, to half or less: for heat, or for want of power
  [[nodiscard]] bool any() const noexcept { return power || thermal || hardware; }
  friend bool operator==(const ThrottleReasons&, const ThrottleReasons&) = default;
};
/// Now.
[[nodiscard]] TUTTI_EXPORT ThrottleReasons throttle_reasons(Device device = Device::current());

/// A process that uses a GPU.
struct GpuProcess {
  int id =
      0;  ///< as NVML counts processes: in a container it may be another number than the process has there
  std::optional<std::size_t> memory_bytes;  ///< of the device; nothing if NVML may not tell
};
/// The processes that compute on a device, in ascending order.
[[nodiscard]] TUTTI_EXPORT std::vector<GpuProcess> get_gpu_processes(Device device = Device::current());
/// The same as a text for people, one line each: "device:0", then "process 4711 uses 512.0 MiB of its memory"
/// ("an unknown amount" where NVML may not tell), or "no processes are running".
[[nodiscard]] TUTTI_EXPORT std::string list_gpu_processes(Device device = Device::current());

}  // namespace tutti
