// SPDX-License-Identifier: Apache-2.0
#include "tutti/telemetry.hpp"

#include "backend/telemetry_calls.hpp"
#include "base/format_bytes.hpp"
#include "device/current_device.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti {
namespace {

int reading(Device device, backend::Gauge gauge) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().read_gauge(index_of(runtime, device, name_of(gauge)), gauge);
}

std::vector<GpuProcess> processes_of(int device) {
  std::vector<GpuProcess> processes = Runtime::get().backend().processes_on(device);
  std::ranges::sort(processes, {}, &GpuProcess::id);
  return processes;
}

}  // namespace

int utilization(Device device) {
  return reading(device, backend::Gauge::utilization);
}

int memory_usage(Device device) {
  return reading(device, backend::Gauge::memory_usage);
}

int temperature(Device device) {
  return reading(device, backend::Gauge::temperature);
}

int power_draw(Device device) {
  return reading(device, backend::Gauge::power_draw);
}

int clock_rate(Device device) {
  return reading(device, backend::Gauge::clock_rate);
}

int memory_clock_rate(Device device) {
  return reading(device, backend::Gauge::memory_clock_rate);
}

ThrottleReasons throttle_reasons(Device device) {
  Runtime& runtime = Runtime::get();
  return runtime.backend().throttle_reasons(index_of(runtime, device, "throttle_reasons"));
}

std::vector<GpuProcess> get_gpu_processes(Device device) {
  return processes_of(index_of(Runtime::get(), device, "get_gpu_processes"));
}

std::string list_gpu_processes(Device device) {
  const int index = index_of(Runtime::get(), device, "list_gpu_processes");
  const std::vector<GpuProcess> processes = processes_of(index);
  std::string text = to_string(Device(index));
  if (processes.empty()) text += "\nno processes are running";
  for (const GpuProcess& process : processes) {
    const std::string used = process.memory_bytes ? format_bytes(*process.memory_bytes) : "an unknown amount";
    text += fmt::format("\nprocess {} uses {} of its memory", process.id, used);
  }
  return text;
}

}  // namespace tutti
