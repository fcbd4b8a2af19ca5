// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/shared/membership.hpp"
#include "tutti/exchange.hpp"

#include <span>

namespace tutti::transport::team {

/// A `Network` that connects to those it sends to derives from this class as well. Others connect, if they
/// do, when something is sent.
class ConnectingNetwork {
 public:
  ConnectingNetwork() = default;
  ConnectingNetwork(const ConnectingNetwork&) = delete;
  ConnectingNetwork& operator=(const ConnectingNetwork&) = delete;
  virtual ~ConnectingNetwork() = default;

  /// Connects to these ranks, to whom alone this one will send. Called once, before anything is sent; the
  /// other ranks need not call anything meanwhile. Throws Error(peer_unavailable) with a rank that cannot be
  /// reached.
  virtual void reach(std::span<const int> targets) = 0;
};

/// Has the network connect to those that this rank's host proxy will send to, if it connects at all. Throws
/// what it throws.
void connect_to_receivers(Network& network, const Membership& membership);

}  // namespace tutti::transport::team
