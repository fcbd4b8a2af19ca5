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
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tutti::tcp {

/// Connections of this process to others, which the networks of all communicators among them share.
///
/// A process connects to those that it sends to, and sends its messages there; the other end sends back how
/// many it has received. So there are two connections between processes that send to each other, and none
/// between others. All processes learn one another's addresses and public keys at the start. A connection
/// begins with a greeting, whose digest needs the keys of both ends; the keys of its records follow from it.
///
/// A process that is gone, or that has not answered for the timeout, is lost: it stays so.
///
/// Thread-safe. The ranks are those of the exchange by which the mesh was made.
class Mesh {
 public:
  struct Settings {
    Address address;        ///< of this process, for all others to connect to; the port is chosen
    Key key{};              ///< the same on all
    bool encrypts = false;  ///< one rank that asks is enough
    std::chrono::milliseconds timeout{60'000};
  };

  /// All ranks of the exchange make it together. Throws Error(transport_failure) where it cannot listen,
  /// without keeping the others from going on, who are told then.
  Mesh(tutti::Exchange& exchange, const Settings& settings);
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;
  ~Mesh();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Returns the number of a new network, different from those of all other processes.
  [[nodiscard]] std::uint64_t new_number();
  /// Begins and ends a network of some ranks. Ending it tells the others, and drops its messages.
  void begin(std::uint64_t network, std::span<const int> ranks);
  void end(std::uint64_t network) noexcept;

  /// Connects to the ranks. Throws Error(peer_unavailable) with the first that cannot be reached.
  void reach(std::span<const int> ranks);
  void send(std::uint64_t network, int target, std::vector<std::byte> bytes);
  /// Returns the next message of the network. Throws Error(peer_unavailable) if one of its ranks is lost that
  /// had not left it.
  [[nodiscard]] std::optional<Network::Message> receive(std::uint64_t network);
  [[nodiscard]] bool is_delivered(std::uint64_t network);
  [[nodiscard]] bool is_busy(std::uint64_t network);

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
  /// One direction of messages between this process and another; what is known of them comes back.
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
  /// Counts what a network and another rank have had from one another.
  struct Account {
    std::uint64_t sent = 0;
    std::uint64_t counted = 0;  ///< of `sent`, those that the other has received
    std::uint64_t received = 0;
    bool is_owed = false;  ///< the other has not been told of `received`
    bool has_left = false;
    bool may_send = true;  ///< its word that it has left may have overtaken what it sent before
  };
  struct Box {
    std::vector<int> ranks;  ///< empty until it begins here
    std::map<int, Account> accounts;
    std::deque<Network::Message> arrived;
    bool owes = false;       ///< somebody is to be told how many messages have been received
    bool was_empty = false;  ///< when it was last looked into
  };
  enum class Which : std::uint8_t { listener, out, in, stranger };

  [[nodiscard]] Peer& peer(int rank) { return peers_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Key& key_with(int rank);
  [[nodiscard]] Protection protection_with(int rank) const;
  void watch(const Descriptor& socket, Which which, int number, bool writes, bool is_new) const;
  void pump();
  void accept();
  void hear_stranger(int number);
  void admit(Stranger& stranger);
  void connect(int rank);
  void continue_connecting(int rank);
  void require_reached(std::span<const int> ranks);
  /// Sends what is queued, and has epoll tell when the rest can be sent.
  void flush(int rank, Which which);
  void hear(int rank, Which which);
  void take_frame(int rank, Which which, const Header& header, std::vector<std::byte> body);
  void take_leave(int rank, std::uint64_t network, bool is_copy);
  /// Ends a connection, and decides what that says about its rank.
  void end_connection(int rank, Which which, int error);
  void judge_suspects();
  void lose(int rank, const std::string& reason);
  void tell(int rank, Which which, const Header& header);
  void start_records(int rank, Connection& its, Which which);
  [[nodiscard]] Greeting greeting_from(int from, int to, const Key& nonce);
  [[nodiscard]] Connection& connection(int rank, Which which) {
    return which == Which::out ? peer(rank).out : peer(rank).in;
  }
  [[nodiscard]] std::string place_of(int rank) const;
  void require_all_here(const Box& box);
  /// Tells the senders how many of their messages have been received. That is in nobody's way where it is
  /// done after answers to them have been sent.
  void settle(std::uint64_t network, Box& box);
  /// Returns false if there is no connection on which to tell it.
  bool tell_of_leaving(int rank, std::uint64_t network);

  std::mutex mutex_;  ///< of all below
  int rank_ = 0;
  Settings settings_;
  KeyPair pair_;
  Protection offer_;
  Descriptor listener_;
  Descriptor epoll_;
  std::vector<Peer> peers_;  ///< by rank
  std::map<int, Stranger> strangers_;
  int strangers_made_ = 0;
  std::map<std::uint64_t, Box> boxes_;
  /// Networks that have ended here, and the ranks that may still send to them.
  std::map<std::uint64_t, std::set<int>> ended_;
  std::uint32_t numbers_ = 0;
  int busy_ = 0;      ///< connections with a frame half-way, in each direction
  int losses_ = 0;    ///< ranks that are lost
  int suspects_ = 0;  ///< ranks that may be
};

}  // namespace tutti::tcp
