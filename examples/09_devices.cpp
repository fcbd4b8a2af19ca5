// SPDX-License-Identifier: Apache-2.0
// What devices there are, what they are like, and which of them read one another's memory: the same program
// on GPUs and on virtual devices.

#include "tutti/tutti.hpp"

#include <iostream>

int main() {
  std::cout << tutti::device_count() << " devices: " << name_of(tutti::backend_kind()) << '\n';
  for (int device = 0; device < tutti::device_count(); ++device) {
    const tutti::DeviceProperties& properties = tutti::get_device_properties(device);
    const auto [free, total] = tutti::mem_get_info(device);
    std::cout << tutti::Device(device) << ": " << properties.name << ", " << properties.multiprocessor_count
              << " multiprocessors, " << (free >> 20U) << " of " << (total >> 20U) << " MiB free; reads from";
    for (int peer = 0; peer < tutti::device_count(); ++peer) {
      if (peer != device && tutti::can_device_access_peer(device, peer)) std::cout << ' ' << peer;
    }
    std::cout << '\n';
  }

  // "The current device" is each thread's own; guards change it for a while.
  const int last = tutti::device_count() - 1;
  {
    const tutti::DeviceGuard guard(last);
    const tutti::Tensor there = tutti::zeros({4}, {.device = tutti::Device::current()});
    std::cout << "made on " << there.device() << '\n';
  }
  std::cout << "current again: " << tutti::Device(tutti::current_device()) << '\n';

  // What the hardware measures, where there is hardware.
  try {
    const int power = tutti::power_draw(0);
    std::cout << "device 0 draws " << power << " mW at " << tutti::temperature(0) << " C\n";
  } catch (const tutti::Error& error) {
    std::cout << error.what() << '\n';
  }
}
