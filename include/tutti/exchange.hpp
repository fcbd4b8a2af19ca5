// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class Exchange;

/// Messages among the processes of an `Exchange`: what a `Communicator` needs if its ranks are on several
/// hosts. `tutti/mpi.hpp` has one.
///
/// The communicator that has it calls from a thread of its own, one call at a time; only `part` and `name`
/// may be called by another thread meanwhile. Whatever a call throws ends the communicator.
class TUTTI_EXPORT Network {
 public:
  struct Message {
    int source = 0;  ///< a rank
    std::vector<std::byte> bytes;
  };

  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  /// Waits for nobody. What has not been delivered may be dropped.
  virtual ~Network();

  /// What carries the messages, for people to read.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Takes a message for rank `target`, another one, and returns at once, whether or not that rank receives.
  /// Messages from one rank to another arrive in order. What waits to be received is bounded by the
  /// communicator: per sender, a few hundred short messages and the bytes of its members' windows.
  virtual void send(int target, std::vector<std::byte> bytes) = 0;
  /// The next message that has come, from whatever rank; nothing if none has. Returns at once, having done
  /// what sends under way need.
  [[nodiscard]] virtual std::optional<Message> receive() = 0;
  /// Whether all messages of this rank have been received.
  [[nodiscard]] virtual bool is_delivered() = 0;
  /// Whether messages are half-way, so that frequent calls of `receive` help them along.
  [[nodiscard]] virtual bool is_busy() = 0;
  /// A network of some of the ranks, numbered in the order of `ranks`, in which this one is. All of them call
  /// it together; `exchange` is among them, in the same order. It does not need this one afterwards.
  [[nodiscard]] virtual std::unique_ptr<Network> part(std::span<const int> ranks, Exchange& exchange) = 0;
};

/// How the processes of a `Communicator` talk while they make it: the one thing a job launcher has to
/// provide. `tutti/mpi.hpp` makes one from an `MPI_Comm`.
///
/// Implementations need not be thread-safe; a communicator calls from one thread at a time.
class TUTTI_EXPORT Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange();

  /// This process among `size()`, from 0.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Every rank gives `mine`, all of one length; every rank gets all of them, in order of ranks: `all` is
  /// size() times as long. Returns when all have called. What it throws reaches the caller of the
  /// communicator.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Called by a communicator before it makes use of the exchange: from now on, an `all_gather` that has
  /// waited so long for other ranks should throw, Error(timeout) with the numbers of those that have not
  /// come. Not so an exchange that does nothing, as here: who makes a communicator may wait for ever then.
  virtual void limit_waits(std::chrono::milliseconds timeout);
  /// Messages among the same processes, which may be used after the exchange is gone. All ranks call it
  /// together, and only if they are on several hosts. nullptr, as here, if there is no such thing.
  [[nodiscard]] virtual std::unique_ptr<Network> network();
};

}  // namespace tutti
