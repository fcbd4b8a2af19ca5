// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/handshake.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

constexpr std::array<char, 16> mark = {'t', 'u', 't', 't', 'i', ' ', 't', 'c', 'p', ' ', '2', '\n'};

constexpr std::string_view of_visitor = "visitor ";
constexpr std::string_view of_host = "host    ";

Hello hello_of(const KeyPair& pair) {
  return {.mark = mark, .public_key = pair.public_key()};
}

Key proof_of_visitor(const Key& key, const Hello& visitor, const Hello& host, const Claim& claim) {
  return digest_of(key, {std::as_bytes(std::span(of_visitor)), object_bytes(visitor), object_bytes(host),
                         object_bytes(claim)});
}

Key proof_of_host(const Key& key, const Hello& visitor, const Hello& host, const Claim& claim,
                  const Protection& chosen) {
  return digest_of(key, {std::as_bytes(std::span(of_host)), object_bytes(visitor), object_bytes(host),
                         object_bytes(claim), object_bytes(chosen)});
}

/// The session as the visitor has it.
Session session_of(const Key& key, const Key& agreed_on, const Hello& visitor, const Hello& host,
                   const Claim& claim, const Protection& chosen) {
  const Key base = digest_of(
      key, {agreed_on, object_bytes(visitor), object_bytes(host), object_bytes(claim), object_bytes(chosen)});
  return {.to_other = digest_of(base, {std::as_bytes(std::span(of_visitor))}),
          .from_other = digest_of(base, {std::as_bytes(std::span(of_host))}),
          .protection = chosen};
}

/// Tells whether what has come of an object that begins with a hello, all but `rest`, is as it should be.
template <class Object>
bool begins_with_mark(const Object& object, std::span<const std::byte> rest) {
  const std::size_t taken = std::min(sizeof(Object) - rest.size(), mark.size());
  return std::ranges::equal(object_bytes(object).first(taken), object_bytes(mark).first(taken));
}

/// Receives rank 0's hello, and throws as soon as it is none.
Progress receive_hello(const Descriptor& socket, Hello& host, const Rendezvous& rendezvous,
                       const Wait& wait) {
  std::span<std::byte> rest = writable_object_bytes(host);
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

Key key_of(std::string_view secret, std::string_view job) {
  // Of any length; keys of the digest may not be longer than it.
  const Key short_secret = digest_of({}, {std::as_bytes(std::span(secret))});
  constexpr std::string_view use = "tutti tcp 2 ";
  return digest_of(short_secret, {std::as_bytes(std::span(use)), std::as_bytes(std::span(job))});
}

Key key_of(const Rendezvous& rendezvous) {
  return key_of(rendezvous.secret, rendezvous.job);
}

Visitor::Visitor(Descriptor socket, const Key& key, bool encrypts)
    : socket_(std::move(socket)),
      key_(key),
      offer_(protection_offered(encrypts)),
      own_(hello_of(pair_)),
      rest_(writable_object_bytes(taken_)) {
  std::span<const std::byte> hello = object_bytes(own_);
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
  const bool is_proven = are_equal(taken_.proof.digest, proof_of_visitor(key_, taken_.hello, own_, claim));
  std::optional<Key> agreed_on;
  if (is_proven) agreed_on = pair_.agree(taken_.hello.public_key);
  Answer answer{};
  if (agreed_on) {
    answer.protection = agreed(offer_, claim.offer);
    answer.digest = proof_of_host(key_, taken_.hello, own_, claim, answer.protection);
    session_ = session_of(key_, *agreed_on, taken_.hello, own_, claim, answer.protection);
    std::swap(session_.to_other, session_.from_other);
  }
  std::span<const std::byte> rest = object_bytes(answer);
  const bool is_told = send(socket_, rest) == Progress::complete;
  if (!agreed_on) return State::refused;
  return is_told ? State::admitted : State::gone;
}

Introduction introduce(const Descriptor& socket, const Rendezvous& rendezvous, const Wait& wait,
                       Session& session) {
  const Key key = key_of(rendezvous);
  const KeyPair pair;
  const Hello own = hello_of(pair);
  Hello host{};
  const Claim claim{
      .rank = rendezvous.rank, .size = rendezvous.size, .offer = protection_offered(rendezvous.encrypts)};
  Answer answer{};
  Progress progress = send_all(socket, object_bytes(own), wait);
  if (progress == Progress::complete) progress = receive_hello(socket, host, rendezvous, wait);
  if (progress == Progress::complete) {
    const Proof proof{.claim = claim, .digest = proof_of_visitor(key, own, host, claim)};
    progress = send_all(socket, object_bytes(proof), wait);
  }
  if (progress == Progress::complete) progress = receive_all(socket, writable_object_bytes(answer), wait);
  if (progress == Progress::halfway) return Introduction::unanswered;
  if (progress == Progress::closed) return Introduction::cut_off;
  const std::optional<Key> agreed_on = pair.agree(host.public_key);
  if (agreed_on && are_equal(answer.digest, proof_of_host(key, own, host, claim, answer.protection))) {
    session = session_of(key, *agreed_on, own, host, claim, answer.protection);
    return Introduction::admitted;
  }
  throw Error(
      ErrorCode::invalid_argument,
      rendezvous.rank == Claim::newcomer
          ? fmt::format("what listens at {} has another secret than this process, or is of another job",
                        place_of(rendezvous))
          : fmt::format(
                "what listens at {} has another secret than rank {} (TUTTI_SECRET), or is of another job",
                place_of(rendezvous), rendezvous.rank));
}

}  // namespace tutti::tcp
