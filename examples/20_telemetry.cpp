// SPDX-License-Identifier: Apache-2.0
// How a device fares, and where the program waits for it: NVML's gauges, which virtual devices do not have,
// and the sync debug mode, which refuses calls that block.

#include "tutti/tutti.hpp"

#include <iostream>

namespace {

/// Whether the gauges could be read where there are some.
bool tell_of(tutti::Device device) {
  std::cout << tutti::to_string(device) << " is " << tutti::get_device_name(device) << '\n';
  try {
    const int busy = tutti::utilization(device);
    const int memory_busy = tutti::memory_usage(device);
    const int degrees = tutti::temperature(device);
    const int milliwatts = tutti::power_draw(device);
    const int megahertz = tutti::clock_rate(device);
    std::cout << "  busy " << busy << " %, memory busy " << memory_busy << " %, " << degrees << " degrees C, "
              << milliwatts << " mW, " << megahertz << " MHz\n  " << tutti::list_gpu_processes(device)
              << '\n';
  } catch (const tutti::Error& error) {
    std::cout << "  no gauges: " << error.what() << '\n';
    return error.code() == tutti::ErrorCode::unsupported;
  }
  return true;
}

}  // namespace

int main() {
  for (int device = 0; device < tutti::device_count(); ++device) {
    if (!tell_of(device)) return 1;
  }

  const tutti::Tensor tensor = tutti::ones({1 << 10}, {.device = 0});
  const tutti::Tensor pinned = tutti::zeros({1 << 10}, {.host_memory = tutti::HostMemory::pinned});
  tutti::synchronize(0);
  tutti::set_sync_debug_mode(tutti::SyncDebugMode::error);
  pinned.copy_(tensor, tutti::Blocking::no);  // queued: the program goes on
  bool is_refused = false;
  try {
    pinned.copy_(tensor);  // this one would wait
  } catch (const tutti::Error& error) {
    std::cout << "refused: " << error.what() << '\n';
    is_refused = true;
  }
  tutti::set_sync_debug_mode(tutti::SyncDebugMode::none);
  tutti::synchronize(0);
  return is_refused ? 0 : 1;
}
