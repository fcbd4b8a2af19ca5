// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator_options.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

namespace tutti {

/// Returns the options with the device of a rank of this number on its host, unless they name devices.
[[nodiscard]] inline CommunicatorOptions with_own_device(CommunicatorOptions options, int local_rank) {
  try {
    init();  // the count is that of the devices that will be used
    const int count = device_count();
    if (options.devices.empty() && count > 0) options.devices.emplace_back(local_rank % count);
  } catch (const Error&) {
    // A rank that has no devices: the communicator's constructor finds out again, and tells the others.
  }
  return options;
}

}  // namespace tutti
