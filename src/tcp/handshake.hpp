// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/descriptor.hpp"
#include "tcp/sha256.hpp"
#include "tcp/sockets.hpp"
#include "tutti/tcp.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

/// How both ends of a connection prove that they have the same secret and are of the same job.
///
/// Each says hello: a mark, and bytes by chance. Then who has connected says who it is, and proves by a keyed
/// digest of both hellos and of that; then rank 0 proves the same. Nothing of what a stranger sends is looked
/// at but the mark and the digest.
namespace tutti::tcp {

/// What is proven.
[[nodiscard]] Digest key_of(const Rendezvous& rendezvous);

struct Hello {
  std::array<char, 16> mark;
  std::array<std::byte, 32> nonce;
};
/// Who has connected.
struct Claim {
  std::int32_t rank = 0;
  std::int32_t size = 0;
};
struct Proof {
  Claim claim;
  Digest digest;
};

/// Who has connected to rank 0.
class Visitor {
 public:
  Visitor(Descriptor socket, const Digest& key);
  // Parts of the object are pointed to.
  Visitor(const Visitor&) = delete;
  Visitor& operator=(const Visitor&) = delete;

  enum class State : std::uint8_t { undecided, admitted, refused };
  /// As far as it goes without waiting. Who takes too long is refused.
  [[nodiscard]] State advance();
  [[nodiscard]] const Descriptor& socket() const noexcept { return socket_; }
  /// Of one who was admitted, as the next two.
  [[nodiscard]] Claim claim() const noexcept { return taken_.proof.claim; }
  [[nodiscard]] Descriptor take_socket() noexcept { return std::move(socket_); }

 private:
  /// All that is read of a stranger.
  struct Taken {
    Hello hello;
    Proof proof;
  };

  Descriptor socket_;
  Digest key_;
  Hello own_;
  Taken taken_{};
  std::span<std::byte> rest_;
  std::chrono::steady_clock::time_point end_;
};

/// Proves to rank 0, which listens at the other end, who this is, and has it prove itself. Throws
/// Error(invalid_argument) where either fails, peer_unavailable where what listens there does not answer as
/// rank 0.
void introduce(const Descriptor& socket, const Rendezvous& rendezvous, const Exchange::Watch& watch);

}  // namespace tutti::tcp
