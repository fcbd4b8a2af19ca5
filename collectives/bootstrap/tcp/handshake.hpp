// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/cipher.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "os/descriptor.hpp"
#include "tutti/tcp.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

/// The handshake, by which both ends of a connection prove that they have the same secret and job, and agree
/// on keys for what follows.
///
/// Both ends send a hello: a mark, and a new public key. Then the end that has connected sends its rank, and
/// proves itself by a digest of both hellos and its rank, keyed by the secret and the job. Then rank 0 proves
/// itself in the same way, or answers by a digest of zeros that it does not accept the proof. The keys depend
/// on the secret, the job, both hellos, the claim, and what the two key pairs agree on: who learns the secret
/// later cannot read what was sent. Of an unknown sender's bytes, only the mark and the digest are read.
namespace tutti::tcp {

/// Makes the key by which both ends prove that they have the secret and the job.
[[nodiscard]] Key key_of(std::string_view secret, std::string_view job);
[[nodiscard]] Key key_of(const Rendezvous& rendezvous);

struct Hello {
  std::array<char, 16> mark;
  Key public_key;
};
/// The rank and the number of ranks that a connecting process claims, and how it can protect what follows.
struct Claim {
  static constexpr std::int32_t newcomer = -1;  ///< in place of a rank: the process wants to become one

  std::int32_t rank = 0;
  std::int32_t size = 0;
  Protection offer;
};
struct Proof {
  Claim claim;
  Key digest;
};
/// Rank 0's proof, and how what follows is protected.
struct Answer {
  Protection protection;
  Key digest;
};
/// Holds what both ends of a connection have agreed on.
struct Session {
  Key to_other{};
  Key from_other{};
  Protection protection;
};

/// A connection to rank 0 whose other end has still to prove that it belongs to the job.
class Visitor {
 public:
  Visitor(Descriptor socket, const Key& key, bool encrypts);
  // Parts of the object are pointed to.
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  enum class State : std::uint8_t {
    undecided,
    admitted,
    refused,   ///< it has another secret, or is of another job
    stranger,  ///< it speaks another language
    gone,      ///< it has closed the connection
  };
  /// Continues the handshake as far as that is possible without waiting. A silent visitor stays undecided as
  /// long as it is connected.
  [[nodiscard]] State advance();
  [[nodiscard]] const Descriptor& socket() const noexcept { return socket_; }
  /// Returns true if the visitor has sent something, and nothing that a rank would not send.
  [[nodiscard]] bool has_spoken() const noexcept { return rest_.size() < sizeof(Taken); }
  /// Returns the time at which the other end last sent something or, if it has not, connected.
  [[nodiscard]] std::chrono::steady_clock::time_point last_heard() const noexcept { return last_heard_; }
  /// Returns what an admitted visitor says it is. Call this and `take_socket` only once it is admitted.
  [[nodiscard]] Claim claim() const noexcept { return taken_.proof.claim; }
  [[nodiscard]] Descriptor take_socket() noexcept { return std::move(socket_); }
  [[nodiscard]] const Session& session() const noexcept { return session_; }

 private:
  /// The bytes that are read of an unknown sender; no more are.
  struct Taken {
    Hello hello;
    Proof proof;
  };

  [[nodiscard]] Progress listen();

  Descriptor socket_;
  Key key_;
  Protection offer_;
  KeyPair pair_;
  Hello own_;
  Session session_;
  Taken taken_{};
  std::span<std::byte> rest_;
  std::chrono::steady_clock::time_point last_heard_ = std::chrono::steady_clock::now();
};

enum class Introduction : std::uint8_t {
  admitted,
  unanswered,  ///< until the wait was over
  cut_off,     ///< what listens there has closed the connection, as a rank 0 does that ends
};
/// Proves this rank to rank 0, which listens at the other end, and checks rank 0's proof; sets `session`.
/// Throws
/// Error(invalid_argument) if the listener has another secret or job, peer_unavailable if it does not speak
/// as rank 0 does.
[[nodiscard]] Introduction introduce(const Descriptor& socket, const Rendezvous& rendezvous, const Wait& wait,
                                     Session& session);

}  // namespace tutti::tcp
