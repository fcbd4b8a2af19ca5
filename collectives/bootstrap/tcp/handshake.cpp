// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/handshake.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/random.h>

namespace tutti::tcp {
namespace {

constexpr std::array<char, 16> mark = {'t', 'u', 't', 't', 'i', ' ', 't', 'c', 'p', ' ', '1', '\n'};

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

/// Tells whether what has come of an object that begins with a hello, all but `rest`, is as it should be.
template <class Object>
bool begins_with_mark(const Object& object, std::span<const std::byte> rest) {
  const std::size_t taken = std::min(sizeof(Object) - rest.size(), mark.size());
  return std::ranges::equal(bytes_of(object).first(taken), bytes_of(mark).first(taken));
}

/// Receives rank 0's hello, and throws as soon as it is none.
Progress receive_hello(const Descriptor& socket, Hello& host, const Rendezvous& rendezvous,
                       const Wait& wait) {
  std::span<std::byte> rest = writable_bytes_of(host);
  for (;;) {
    const Progress progress = receive(socket, rest);
    if (!begins_with_mark(host, rest)) {
      throw Error(
          ErrorCode::peer_unavailable,
          fmt::format(
              "what listens at {} does not answer as rank 0 does: has another program taken the port?",
              place_of(rendezvous)));
    }
    if (progress != Progress::halfway || wait.is_over()) return progress;
    wait.until_ready(socket, POLLIN);
  }
}

}  // namespace

Digest key_of(const Rendezvous& rendezvous) {
  const std::string text = "tutti tcp 1 " + rendezvous.job;
  return hmac_sha256(std::as_bytes(std::span(rendezvous.secret)), std::as_bytes(std::span(text)));
}

Visitor::Visitor(Descriptor socket, const Digest& key)
    : socket_(std::move(socket)), key_(key), own_(make_hello()), rest_(writable_bytes_of(taken_)) {
  std::span<const std::byte> hello = bytes_of(own_);
  // So little fits where nothing has been sent.
  if (send(socket_, hello) != Progress::complete) {
    socket_.close();
  } else {
    static_cast<void>(listen());  // a rank has greeted by now: so it is told from those that say nothing
  }
}

Progress Visitor::listen() {
  const std::size_t missing = rest_.size();
  const Progress progress = receive(socket_, rest_);
  if (rest_.size() < missing) last_heard_ = std::chrono::steady_clock::now();
  return progress;
}

Visitor::State Visitor::advance() {
  if (!socket_.is_open()) return State::gone;
  const Progress progress = listen();
  if (!begins_with_mark(taken_, rest_)) return State::stranger;
  if (progress == Progress::halfway) return State::undecided;
  if (progress == Progress::closed) return State::gone;
  const Claim claim = taken_.proof.claim;
  const bool is_proven =
      are_equal(taken_.proof.digest, digest_of(key_, of_visitor, taken_.hello, own_, claim));
  const Digest own = is_proven ? digest_of(key_, of_host, taken_.hello, own_, claim) : Digest{};
  std::span<const std::byte> rest = own;
  const bool is_told = send(socket_, rest) == Progress::complete;
  if (!is_proven) return State::refused;
  return is_told ? State::admitted : State::gone;
}

Introduction introduce(const Descriptor& socket, const Rendezvous& rendezvous, const Wait& wait) {
  const Digest key = key_of(rendezvous);
  const Hello own = make_hello();
  Hello host{};
  const Claim claim{.rank = rendezvous.rank, .size = rendezvous.size};
  Digest answer{};
  Progress progress = send_all(socket, bytes_of(own), wait);
  if (progress == Progress::complete) progress = receive_hello(socket, host, rendezvous, wait);
  if (progress == Progress::complete) {
    const Proof proof{.claim = claim, .digest = digest_of(key, of_visitor, own, host, claim)};
    progress = send_all(socket, bytes_of(proof), wait);
  }
  if (progress == Progress::complete) progress = receive_all(socket, answer, wait);
  if (progress == Progress::halfway) return Introduction::unanswered;
  if (progress == Progress::closed) return Introduction::cut_off;
  if (are_equal(answer, digest_of(key, of_host, own, host, claim))) return Introduction::admitted;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("what listens at {} has another secret than rank {} (TUTTI_SECRET), or is of another job",
                  place_of(rendezvous), rendezvous.rank));
}

}  // namespace tutti::tcp
