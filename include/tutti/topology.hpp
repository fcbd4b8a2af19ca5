// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// The ways in which two devices are connected, best first.
enum class LinkClass : std::uint8_t {
  self,         ///< the same device
  nvlink,       ///< NVLink or NVSwitch
  pcie,         ///< peer access over PCIe
  host_bridge,  ///< no peer access: through host memory
};
/// Returns the enumerator's name, for instance "nvlink".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(LinkClass link) noexcept;

/// Says whether a pair of devices may access each other's memory.
enum class PeerState : std::uint8_t {
  untested,     ///< reported, not yet tested
  usable,       ///< reported and tested: bytes arrive intact
  unreachable,  ///< the system reports no peer access, or refuses to enable it
  corrupting,   ///< the system reports peer access, but bytes do not arrive intact: never used
};
/// Returns the enumerator's name, for instance "usable".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(PeerState state) noexcept;

/// A device's connection to another one.
struct PeerLink {
  LinkClass link = LinkClass::host_bridge;
  PeerState state = PeerState::unreachable;
  int lanes = 0;                 ///< NVLink connections, 0 if not applicable or unknown
  double gigabytes_per_s = 0.0;  ///< nominal payload rate in one direction, 0 if unknown
};

/// The devices of this process and how they are connected.
struct Topology {
  BackendKind backend = BackendKind::host;
  std::vector<DeviceProperties> devices;
  std::vector<std::vector<PeerLink>> peers;  ///< peers[i][j]: device i's connection to device j
  std::string nccl;                          ///< NCCL's version, or the reason why it is unavailable
};

/// Discovers the topology, without running the P2P self-test. Thread-safe. Throws as `init`.
[[nodiscard]] TUTTI_EXPORT Topology discover_topology();
/// Formats a topology as a table for people: devices, link matrix, peer states, transports.
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Topology& topology);
/// Runs the P2P self-test over every pair that reports peer access and has not been tested: each device
/// writes patterns into every peer's memory by kernel and by copy engine, and reads one of the peer's by
/// kernel; every byte is checked. It takes a few milliseconds in all, and the result is cached for the
/// process. Collectives run it for the pairs that they are about to use. A pair that fails is vetoed and
/// logged, which is no error. Without memory for the test, pairs stay untested and unused, which is logged
/// once. Waits for its own work on all devices concerned. Thread-safe. Throws as `init`, and failures of
/// devices.
TUTTI_EXPORT void self_test_peers();

}  // namespace tutti
