// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <string>
#include <vector>

namespace tutti::perf {

/// Which of the devices that a process sees are its own.
struct DeviceChoice {
  int first = 0;  ///< of as many as it uses
  int shown = 0;  ///< how many, from device 0, are all ranks' on its host, as far as it sees them
};

/// For rank `rank` of those on `hosts`, one for each rank in order, each of which uses `used` devices and
/// sees `available`, at least as many. Launchers either show each rank its own devices or all ranks of a host
/// the same; virtual devices are each rank's own. Throws UsageError where the ranks of a host use more than
/// there are.
[[nodiscard]] DeviceChoice devices_of_rank(int used, int available, BackendKind backend, int rank,
                                           const std::vector<std::string>& hosts);

}  // namespace tutti::perf
