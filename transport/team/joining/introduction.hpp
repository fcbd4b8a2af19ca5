// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "device/runtime.hpp"
#include "os/descriptor_port.hpp"
#include "settings/environment.hpp"
#include "transport/team/joining/bootstrap_exchange.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "tutti/collectives.hpp"
#include "tutti/exchange.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

namespace tutti::transport::team {

/// Settings with which a rank forms a team. All but the times, the devices and what is said to be
/// each rank's own must be the same on all ranks.
struct TeamSettings {
  std::chrono::milliseconds timeout{60'000};    ///< for ranks that give no sign of life
  std::chrono::milliseconds patience{600'000};  ///< for ranks that are late
  std::size_t window_bytes = 0;                 ///< of each member
  TransportKind transport = TransportKind::automatic;
  TransportSource transport_source = TransportSource::options;
  Determinism determinism = Determinism::fastest;  ///< decides plans
  /// Multiprocessors that kernels of a call may hold at a time on each device, at least 1.
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;
  /// Members may read and write one another's operands, where they reach one another's memory.
  bool is_direct = true;
  /// Others may open memory of the program's own that is not registered; a matter of each rank.
  bool opens_foreign_memory = false;
  std::vector<int> devices;  ///< this rank's members
  /// Calls are posted. If not, they are only numbered: for a single rank, whose calls are never late, and
  /// which exposes no addresses.
  bool is_posted = true;
};

/// The information that the ranks that form a team have exchanged.
struct Introductions {
  Membership membership;
  std::vector<pid_t> process_numbers;  ///< by rank; each as its rank counts
  std::vector<PeerProcess> processes;  ///< by rank; none for those of this process or that cannot be watched
  std::shared_ptr<DescriptorPort> port;  ///< over which others of this host get memory; none if they cannot
  std::unique_ptr<Network> network;      ///< nullptr if there is one host
};

/// Exchanges the ranks' introductions. Throws on all ranks if one of them cannot take part, if they differ in
/// what must be the same, or if they are on several hosts without a network. Collective over the exchange.
[[nodiscard]] Introductions introduce(Runtime& runtime, BootstrapExchange& exchange,
                                      const TeamSettings& settings);
/// Declines to form a team: the other ranks' `introduce` throws an error with this rank's `complaint`.
void decline_to_join(Exchange& exchange, const std::string& complaint) noexcept;

}  // namespace tutti::transport::team
