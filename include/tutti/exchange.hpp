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

/// Carries messages among the processes of an `Exchange`. A `Communicator` needs it if its ranks are on
/// several hosts. `tutti/mpi.hpp` has an implementation.
///
/// The communicator calls it from a thread of its own, one call at a time; only `part` and `name` may be
/// called by another thread meanwhile. An exception from a call ends the communicator.
class TUTTI_EXPORT Network {
 public:
  struct Message {
    int source = 0;  ///< a rank
    std::vector<std::byte> bytes;
  };

  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  /// Does not wait. Messages that have not been delivered may be dropped.
  virtual ~Network();

  /// Returns the name of the carrier, for people to read.
  [[nodiscard]] virtual std::string name() const = 0;
  /// Queues a message for another rank, `target`, and returns at once, whether or not that rank is receiving.
  /// Messages from one rank to another arrive in order. The communicator bounds the messages that wait to be
  /// received: per sender, a few hundred short ones and the bytes of its members' windows.
  virtual void send(int target, std::vector<std::byte> bytes) = 0;
  /// Returns the next message that has arrived, from any rank, or nothing if none has. Does not block, and
  /// advances sends under way.
  [[nodiscard]] virtual std::optional<Message> receive() = 0;
  /// Returns whether all messages of this rank have been received.
  [[nodiscard]] virtual bool is_delivered() = 0;
  /// Returns whether messages are under way, so that frequent calls of `receive` speed them up.
  [[nodiscard]] virtual bool is_busy() = 0;
  /// Makes a network of some of the ranks, this one included, numbered in the order of `ranks`. All of them
  /// call it together; `exchange` is among them, in the same order. The new network does not depend on this
  /// one afterwards.
  [[nodiscard]] virtual std::unique_ptr<Network> part(std::span<const int> ranks, Exchange& exchange) = 0;
};

/// Lets the ranks of a `Communicator` exchange data while they make it; a job launcher has to provide
/// nothing else. `tutti/mpi.hpp` makes one from an `MPI_Comm`, `tutti/tcp.hpp` one over TCP.
///
/// Implementations need not be thread-safe; a communicator calls from one thread at a time.
class TUTTI_EXPORT Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  virtual ~Exchange();

  /// Returns this rank's number among `size()`, from 0. Ranks that are threads have an exchange each.
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  /// Gathers `mine` of every rank, all of one length, into `all` in rank order; `all` is size() times as
  /// long. Returns when all ranks have called it. Exceptions reach the caller of the communicator.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// Sets how long an `all_gather` may wait for other ranks from now on. After that it should throw
  /// Error(timeout) with the numbers of the missing ranks. A communicator calls this before it uses the
  /// exchange. The default does nothing: making a communicator may then wait for ever.
  virtual void limit_waits(std::chrono::milliseconds timeout);
  /// Returns a network among the same processes, which may be used after the exchange is gone, or nullptr,
  /// the default, if there is none. All ranks call it together, and only if they are on several hosts.
  [[nodiscard]] virtual std::unique_ptr<Network> network();
};

}  // namespace tutti
