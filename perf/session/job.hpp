// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"
#include "perf/session/device_watch.hpp"
#include "tutti/device.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

/// One of the devices that take part, in any process.
struct MemberDevice {
  int rank = 0;
  std::string host;
  int process = 0;  ///< its number on the host
  int device = 0;   ///< the number it has in its process
  std::string name;
  std::string pci_bus_id;  ///< empty for virtual devices, of which each process has its own
  DeviceHealth health{};
};

/// The times of starting, in milliseconds, on the slowest rank.
struct StartUp {
  double devices = 0.0;       ///< from when the ranks have met until they can be used: with CUDA's contexts
  double communicator = 0.0;  ///< creating it
  double first_collective = 0.0;  ///< from when the ranks have met until one is complete
};

/// The processes of a run and their devices.
struct Job {
  Mode mode = Mode::single_process;
  int ranks = 1;
  int groups = 1;  ///< of consecutive ranks, which measure at the same time
  int devices_per_rank = 1;
  std::vector<MemberDevice> members;
  std::optional<StartUp> start_up;  ///< of ranks

  [[nodiscard]] int ranks_of_group() const noexcept { return ranks / groups; }
  [[nodiscard]] int group_of(int rank) const noexcept { return rank / ranks_of_group(); }
  /// Returns the hosts without repetitions, in order of ranks.
  [[nodiscard]] std::vector<std::string> hosts() const;
};

[[nodiscard]] std::string_view name_of(Mode mode) noexcept;

/// The devices that a process uses, out of those that it sees.
struct DeviceChoice {
  int first = 0;  ///< of as many as it uses
  int shown = 0;  ///< how many, from device 0, are all ranks' on its host, as far as it sees them
};

/// Returns the devices of rank `rank`. `hosts` has the host of each rank, in order; each rank uses `used`
/// devices and sees `available`, at least as many. Launchers either show each rank its own devices, or show
/// all ranks of a host the same; each rank has its own virtual devices. Throws UsageError if the ranks of a
/// host use more devices than there are.
[[nodiscard]] DeviceChoice devices_of_rank(int used, int available, BackendKind backend, int rank,
                                           const std::vector<std::string>& hosts);

}  // namespace tutti::perf
