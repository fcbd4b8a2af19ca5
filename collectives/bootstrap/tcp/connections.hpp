// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/cipher.hpp"
#include "collectives/bootstrap/tcp/frame.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "os/descriptor.hpp"
#include "tutti/exchange.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::tcp {

/// One of the two connections between a pair of processes, on which a frame travels.
enum class Direction : std::uint8_t {
  out,  ///< this process opened it, and sends its messages there
  in,   ///< the other process opened it; this one sends back how many messages it has received
};

/// Connections of this process to others, authenticated, over which frames travel.
///
/// A process connects to those that it sends to, so there are two connections between processes that send to
/// each other, and none between others. All processes learn one another's addresses and public keys at the
/// start. A connection begins with a greeting, whose digest needs the keys of both ends; the keys of its
/// records follow from it.
///
/// A process that is gone, or that has not answered for the timeout, is lost: it stays so.
///
/// Not thread-safe. The ranks are those of the exchange by which the connections were made.
class Connections {
 public:
  struct Settings {
    Address address;        ///< of this process, for all others to connect to; the port is chosen
    Key key{};              ///< the same on all
    bool encrypts = false;  ///< one rank that asks is enough
    std::chrono::milliseconds timeout{60'000};
  };
  /// Is told what arrives, and which ranks are lost.
  class Receiver {
   public:
    virtual void take_frame(int rank, Direction direction, const Header& header,
                            std::vector<std::byte> body) = 0;
    virtual void take_loss(int rank) = 0;

   protected:
    ~Receiver() = default;
  };

  /// All ranks of the exchange make it together. Throws Error(transport_failure) where it cannot listen,
  /// without keeping the others from going on, who are told then.
  Connections(tutti::Exchange& exchange, const Settings& settings, Receiver& receiver);
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;
  ~Connections();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return settings_.timeout; }

  /// Begins to connect to a rank, unless that was begun before or the rank is lost.
  void connect(int rank);
  /// Returns true once the rank can receive messages of this one.
  [[nodiscard]] bool is_reached(int rank) const;
  /// Returns true while frames to the rank wait to be sent.
  [[nodiscard]] bool is_sending(int rank) const {
    const Connection& its = peer(rank).out;
    return its.socket.is_open() && its.waits_to_write;
  }
  /// Returns true from when a connection begins until it ends.
  [[nodiscard]] bool is_open(int rank, Direction direction) const {
    return connection(rank, direction).socket.is_open();
  }
  /// Sends a frame on a connection that is open.
  void tell(int rank, Direction direction, const Header& header);
  /// Sends a frame with a body to a rank to which `connect` was called.
  void send(int rank, const Header& header, std::vector<std::byte> body);
  /// Sends and receives what can be without a wait.
  void pump();
  /// Waits until something can be received, or for the time.
  void wait(std::chrono::milliseconds longest) const;

  /// Returns true while a frame is half-way, in either direction.
  [[nodiscard]] bool is_busy() const noexcept { return busy_ > 0; }
  [[nodiscard]] bool has_losses() const noexcept { return losses_ > 0; }
  /// Returns why the rank is lost; empty if it is not.
  [[nodiscard]] const std::string& loss(int rank) const { return peer(rank).loss; }
  /// Returns the rank's host and port.
  [[nodiscard]] std::string place_of(int rank) const;

 private:
  /// Describes a rank to the others at the start.
  struct Card {
    sockaddr_storage address{};
    std::uint32_t address_length = 0;  ///< 0 if the rank cannot listen
    Protection offer;
    Key public_key{};
  };
  /// The first bytes of a connection.
  struct Greeting {
    std::array<char, 16> mark{};
    std::int32_t from = 0;
    std::int32_t to = 0;
    Key nonce{};
    Key digest{};
  };
  struct Connection {
    Descriptor socket;
    bool is_connected = false;
    std::span<const std::byte> greeting_left{};  ///< to be sent before anything else
    Greeting greeting{};
    std::optional<FrameWriter> writer;
    std::optional<FrameReader> reader;
    bool waits_to_write = false;  ///< epoll tells when it can
    bool is_halfway = false;      ///< a frame that arrives is
    int error = 0;                ///< of what could not be sent
  };
  struct Peer {
    Card card;
    Key key{};  ///< of both, once they have something to do with one another
    bool has_key = false;
    Connection out;
    Connection in;
    std::string loss;  ///< why it is lost; empty if it is not
    /// Why one of the connections has ended, and until when the other may still say that its process has
    /// left.
    std::string suspicion;
    std::chrono::steady_clock::time_point suspected_until;
  };
  /// A connection that has not shown yet whose it is.
  struct Stranger {
    Descriptor socket;
    Greeting greeting;
    std::size_t taken = 0;
  };
  /// Names the kind of socket that an event of epoll belongs to.
  enum class Source : std::uint8_t { out, in, listener, stranger };

  [[nodiscard]] Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] Connection& connection(int rank, Direction direction) {
    return direction == Direction::out ? peer(rank).out : peer(rank).in;
  }
  [[nodiscard]] const Connection& connection(int rank, Direction direction) const {
    return direction == Direction::out ? peer(rank).out : peer(rank).in;
  }
  [[nodiscard]] const Key& key_with(int rank);
  [[nodiscard]] Greeting greeting_from(int from, int to, const Key& nonce);
  void start_records(int rank, Connection& its, Direction direction);
  void watch(const Descriptor& socket, Source source, int number, bool writes, bool is_new) const;
  void accept();
  void hear_stranger(int number);
  void admit(Stranger& stranger);
  void finish_connecting(int rank);
  /// Sends what is queued, and has epoll tell when the rest can be sent.
  void flush(int rank, Direction direction);
  void hear(int rank, Direction direction);
  /// Ends a connection, and decides what that says about its rank.
  void end_connection(int rank, Direction direction, int error);
  void close(Connection& its);
  void suspect(int rank, const std::string& reason);
  void judge_suspects();
  void lose(int rank, const std::string& reason);

  Receiver& receiver_;
  int rank_ = 0;
  Settings settings_;
  KeyPair pair_;
  Protection offer_;
  Descriptor listener_;
  Descriptor epoll_;
  std::vector<Peer> peers_;  ///< by rank
  std::map<int, Stranger> strangers_;
  int strangers_made_ = 0;
  int busy_ = 0;      ///< connections with a frame half-way, in each direction
  int losses_ = 0;    ///< ranks that are lost
  int suspects_ = 0;  ///< ranks that may be
};

}  // namespace tutti::tcp
