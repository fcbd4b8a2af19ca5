// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// A `Network` that also works among the ranks that are left when some are lost derives from this class as
/// well. The messages are kept apart from those of the network. Thread-safe.
class SurvivorNetwork {
 public:
  SurvivorNetwork() = default;
  SurvivorNetwork(const SurvivorNetwork&) = delete;
  SurvivorNetwork& operator=(const SurvivorNetwork&) = delete;
  virtual ~SurvivorNetwork() = default;

  /// Queues a message for another rank, of the same host or not. Drops it if the rank is lost. Messages from
  /// one rank to another arrive in order.
  virtual void send_to_survivor(int target, std::vector<std::byte> bytes) = 0;
  /// Returns the next message that has arrived from any rank, or nothing. Does not wait.
  [[nodiscard]] virtual std::optional<Network::Message> receive_from_survivors() = 0;
  /// Returns why no more messages come from the rank, in words; empty if they may.
  [[nodiscard]] virtual std::string loss_of(int rank) = 0;
  /// Returns true while messages to ranks that are not lost wait to be sent.
  [[nodiscard]] virtual bool is_sending() = 0;
};

}  // namespace tutti::transport::team
