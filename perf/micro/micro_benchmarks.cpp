// SPDX-License-Identifier: Apache-2.0
#include "perf/micro/micro_benchmarks.hpp"

namespace tutti::micro_benchmarks {

void wait_for_all_devices() {
  for (int device = 0; device < device_count(); ++device) synchronize(device);
}

std::vector<Device> all_devices() {
  std::vector<Device> devices;
  for (int device = 0; device < device_count(); ++device) devices.emplace_back(device);
  return devices;
}

Tensor tensor_on(Device device, std::int64_t elements) {
  return empty({elements}, {.device = device});
}

std::vector<Tensor> list_on(Device device, std::size_t count) {
  std::vector<Tensor> tensors;
  for (std::size_t index = 0; index < count; ++index) tensors.push_back(tensor_on(device, tiny));
  return tensors;
}

std::vector<Tensor> one_per_device(std::int64_t elements) {
  std::vector<Tensor> tensors;
  for (const Device device : all_devices()) tensors.push_back(tensor_on(device, elements));
  return tensors;
}

}  // namespace tutti::micro_benchmarks

BENCHMARK_MAIN();
