// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/connections.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tutti::tcp {

/// Carries the messages of all networks among some processes over the same connections.
///
/// Messages go to the rank that is to receive them; it sends back how many it has received.
///
/// Thread-safe. The ranks are those of the exchange by which the mesh was made.
class Mesh final : private Connections::Receiver {
 public:
  /// All ranks of the exchange make it together. Throws as Connections does.
  Mesh(tutti::Exchange& exchange, const Connections::Settings& settings)
      : connections_(exchange, settings, *this) {}
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  [[nodiscard]] int rank() const noexcept { return connections_.rank(); }
  /// Returns the number of a new network, different from those of all other processes.
  [[nodiscard]] std::uint64_t new_number();
  /// Begins and ends a network of some ranks, which goes on without those that are lost if `outlives_losses`.
  /// Ending it tells the others, and drops its messages.
  void begin(std::uint64_t network, std::span<const int> ranks, bool outlives_losses = false);
  void end(std::uint64_t network) noexcept;

  /// Connects to the ranks. Throws Error(peer_unavailable) with the first that cannot be reached.
  void reach(std::span<const int> ranks);
  void send(std::uint64_t network, int target, std::vector<std::byte> bytes);
  /// Returns the next message of the network. Throws Error(peer_unavailable) if one of its ranks is lost that
  /// had not left it, unless the network goes on without it.
  [[nodiscard]] std::optional<Network::Message> receive(std::uint64_t network);
  /// Returns why nothing more comes from the rank in this network, and nothing is left to receive; empty if
  /// something may come.
  [[nodiscard]] std::string loss(std::uint64_t network, int rank);
  /// Returns true while messages to ranks of the network wait to be sent.
  [[nodiscard]] bool is_sending(std::uint64_t network);
  [[nodiscard]] bool is_delivered(std::uint64_t network);
  [[nodiscard]] bool is_busy(std::uint64_t network);

 private:
  /// Counts what a network and another rank have had from one another.
  struct Account {
    std::uint64_t sent = 0;
    std::uint64_t counted = 0;  ///< of `sent`, those that the other has received
    std::uint64_t received = 0;
    bool is_owed = false;  ///< the other has not been told of `received`
    bool has_left = false;
    bool may_send = true;  ///< its word that it has left may have overtaken what it sent before
  };
  /// Holds what has arrived for a network.
  struct Mailbox {
    std::vector<int> ranks;  ///< empty until the network begins here
    std::map<int, Account> accounts;
    std::deque<Network::Message> arrived;
    bool owes = false;       ///< somebody is to be told how many messages have been received
    bool was_empty = false;  ///< when it was last looked into
    bool outlives_losses = false;
  };

  void take_frame(int rank, Direction direction, const Header& header, std::vector<std::byte> body) override;
  void take_loss(int rank) override;
  void take_leave(int rank, std::uint64_t network, bool is_copy);
  /// Returns false if there is no connection on which to tell it.
  bool tell_of_leaving(int rank, std::uint64_t network);
  void require_all_here(const Mailbox& box) const;
  void require_none_lost(std::span<const int> ranks) const;
  /// Tells the senders how many of their messages have been received. That is in nobody's way where it is
  /// done after answers to them have been sent.
  void settle(std::uint64_t network, Mailbox& box);

  std::mutex mutex_;  ///< of all below
  std::map<std::uint64_t, Mailbox> boxes_;
  /// Networks that have ended here, and the ranks that may still send to them.
  std::map<std::uint64_t, std::set<int>> ended_;
  std::uint32_t numbers_ = 0;
  Connections connections_;
};

}  // namespace tutti::tcp
