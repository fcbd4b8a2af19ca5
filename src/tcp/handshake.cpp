// SPDX-License-Identifier: Apache-2.0
#include "tcp/handshake.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/random.h>

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;

constexpr std::array<char, 16> mark = {'t', 'u', 't', 't', 'i', ' ', 't', 'c', 'p', ' ', '1', '\n'};
constexpr auto longest_handshake = 10s;

Hello make_hello() {
  Hello hello{.mark = mark, .nonce = {}};
  // So few bytes come whole.
  while (getrandom(hello.nonce.data(), hello.nonce.size(), 0) < 0) {
    if (errno != EINTR)
      throw Error(ErrorCode::transport_failure, "no random numbers: getrandom failed", errno);
  }
  return hello;
}

Digest digest_of(const Digest& key, std::string_view side, const Hello& visitor, const Hello& host,
                 const Claim& claim) {
  std::vector<std::byte> text;
  const auto add = [&text](std::span<const std::byte> bytes) {
    text.insert(text.end(), bytes.begin(), bytes.end());
  };
  add(std::as_bytes(std::span(side)));
  add(visitor.nonce);
  add(host.nonce);
  add(std::as_bytes(std::span(&claim, 1)));
  return hmac_sha256(key, text);
}

constexpr std::string_view of_visitor = "visitor ";
constexpr std::string_view of_host = "host    ";

template <class Object>
std::span<const std::byte> bytes_of(const Object& object) {
  return std::as_bytes(std::span(&object, 1));
}
template <class Object>
std::span<std::byte> writable_bytes_of(Object& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

}  // namespace

Digest key_of(const Rendezvous& rendezvous) {
  const std::string text = "tutti tcp 1 " + rendezvous.job;
  return hmac_sha256(std::as_bytes(std::span(rendezvous.secret)), std::as_bytes(std::span(text)));
}

Visitor::Visitor(Descriptor socket, const Digest& key)
    : socket_(std::move(socket)),
      key_(key),
      own_(make_hello()),
      rest_(writable_bytes_of(taken_)),
      end_(std::chrono::steady_clock::now() + longest_handshake) {
  std::span<const std::byte> hello = bytes_of(own_);
  // So little fits where nothing has been sent.
  if (send(socket_, hello) != Progress::complete) socket_.close();
}

Visitor::State Visitor::advance() {
  if (!socket_.is_open() || std::chrono::steady_clock::now() > end_) return State::refused;
  const Progress progress = receive(socket_, rest_);
  if (progress == Progress::halfway) return State::undecided;
  if (progress == Progress::closed || taken_.hello.mark != mark) return State::refused;
  const Claim claim = taken_.proof.claim;
  if (!are_equal(taken_.proof.digest, digest_of(key_, of_visitor, taken_.hello, own_, claim)))
    return State::refused;
  const Digest own = digest_of(key_, of_host, taken_.hello, own_, claim);
  std::span<const std::byte> rest = own;
  return send(socket_, rest) == Progress::complete ? State::admitted : State::refused;
}

void introduce(const Descriptor& socket, const Rendezvous& rendezvous, const Exchange::Watch& watch) {
  const Wait wait(longest_handshake, watch);
  const Digest key = key_of(rendezvous);
  const Hello own = make_hello();
  Hello host{};
  if (send_all(socket, bytes_of(own), wait) != Progress::complete ||
      receive_all(socket, writable_bytes_of(host), wait) != Progress::complete || host.mark != mark) {
    throw Error(
        ErrorCode::peer_unavailable,
        fmt::format("what listens at {} does not answer as rank 0 does: has another program taken the port?",
                    place_of(rendezvous)));
  }
  const Claim claim{.rank = rendezvous.rank, .size = rendezvous.size};
  const Proof proof{.claim = claim, .digest = digest_of(key, of_visitor, own, host, claim)};
  Digest answer{};
  if (send_all(socket, bytes_of(proof), wait) != Progress::complete ||
      receive_all(socket, answer, wait) != Progress::complete ||
      !are_equal(answer, digest_of(key, of_host, own, host, claim))) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("what listens at {} has another secret than rank {} (TUTTI_SECRET), or is of another job",
                    place_of(rendezvous), rendezvous.rank));
  }
}

}  // namespace tutti::tcp
