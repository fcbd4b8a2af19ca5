// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/connections.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::array<char, 16> mesh_mark = {'t', 'u', 't', 't', 'i', ' ', 'm', 'e', 's', 'h', ' ', '1', '\n'};
constexpr std::string_view of_pair = "pair";
constexpr std::string_view of_greeting = "greeting";
constexpr std::string_view of_messages = "messages";
constexpr std::string_view of_answers = "answers";
constexpr std::size_t most_unknown = 256;
constexpr int most_at_once = 64;  ///< connections that are accepted before others are heard again

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool is_silence(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN;
}

std::string in_words(int error) {
  return std::system_category().message(error);
}

}  // namespace

Connections::Connections(tutti::Exchange& exchange, const Settings& settings, Receiver& receiver)
    : receiver_(receiver),
      rank_(exchange.rank()),
      settings_(settings),
      offer_(protection_offered(settings.encrypts)),
      epoll_(Descriptor(epoll_create1(EPOLL_CLOEXEC))),
      peers_(static_cast<std::size_t>(exchange.size())) {
  Address address = settings.address;
  listener_ = listen_somewhere(address);
  const int error = errno;
  const bool is_ready = listener_.is_open() && epoll_.is_open();
  Card mine{.address = address.storage, .offer = offer_, .public_key = pair_.public_key()};
  if (is_ready) mine.address_length = address.length;
  std::vector<Card> cards(peers_.size());
  exchange.all_gather(object_bytes(mine), std::as_writable_bytes(std::span(cards)));
  if (!is_ready) {
    throw Error(ErrorCode::transport_failure,
                fmt::format("rank {} cannot listen at {} for other hosts: {}", rank_, settings.address.text(),
                            in_words(error)),
                error);
  }
  for (std::size_t i = 0; i < cards.size(); ++i) {
    peers_[i].card = cards[i];
    if (cards[i].address_length != 0) continue;
    throw Error(ErrorCode::transport_failure, fmt::format("rank {} cannot listen for other hosts", i));
  }
  watch(listener_, Source::listener, 0, false, true);
}

Connections::~Connections() {
  for (Peer& peer : peers_) {
    for (Connection* const its : {&peer.out, &peer.in}) {
      if (!its->socket.is_open()) continue;
      if (its->is_connected && its->greeting_left.empty()) static_cast<void>(its->writer->flush(its->socket));
      // A socket that is closed with bytes unread takes back what it has sent.
      std::array<std::byte, 16'384> unread;
      while (recv(its->socket.number(), unread.data(), unread.size(), MSG_DONTWAIT) > 0) {
      }
    }
  }
}

const Key& Connections::key_with(int rank) {
  Peer& other = peer(rank);
  if (other.has_key) return other.key;
  const std::optional<Key> agreed_on = pair_.agree(other.card.public_key);
  if (!agreed_on) {
    throw Error(ErrorCode::peer_unavailable, fmt::format("rank {} has sent no key of X25519", rank));
  }
  const int lower = std::min(rank, rank_);
  const int higher = std::max(rank, rank_);
  const auto& key_of = [&](int one) -> const Key& {
    return one == rank_ ? pair_.public_key() : peer(one).card.public_key;
  };
  other.key = digest_of(settings_.key, {bytes_of(of_pair), *agreed_on, object_bytes(lower),
                                        object_bytes(higher), key_of(lower), key_of(higher)});
  other.has_key = true;
  return other.key;
}

Connections::Greeting Connections::greeting_from(int from, int to, const Key& nonce) {
  const Key& key = key_with(from == rank_ ? to : from);
  return {.mark = mesh_mark,
          .from = from,
          .to = to,
          .nonce = nonce,
          .digest = digest_of(key, {bytes_of(of_greeting), object_bytes(from), object_bytes(to), nonce})};
}

void Connections::start_records(int rank, Connection& its, Direction direction) {
  const Key& key = key_with(rank);
  const Key messages = digest_of(key, {bytes_of(of_messages), its.greeting.digest});
  const Key answers = digest_of(key, {bytes_of(of_answers), its.greeting.digest});
  const Protection protection = agreed(offer_, peer(rank).card.offer);
  its.writer.emplace(Seal(direction == Direction::out ? messages : answers, protection));
  its.reader.emplace(Seal(direction == Direction::out ? answers : messages, protection));
}

void Connections::watch(const Descriptor& socket, Source source, int number, bool writes, bool is_new) const {
  epoll_event event{};
  event.events = EPOLLIN | (writes ? EPOLLOUT : 0U);
  event.data.u64 = (static_cast<std::uint64_t>(source) << 32U) + static_cast<std::uint32_t>(number);
  if (epoll_ctl(epoll_.number(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket.number(), &event) != 0) {
    throw Error(ErrorCode::transport_failure, fmt::format("epoll_ctl: {}", in_words(errno)), errno);
  }
}

std::string Connections::place_of(int rank) const {
  const Card& card = peer(rank).card;
  return Address{.storage = card.address, .length = card.address_length}.text();
}

void Connections::connect(int rank) {
  Peer& other = peer(rank);
  Connection& its = other.out;
  if (its.writer || !other.loss.empty()) return;
  Key nonce{};
  draw(nonce);
  its.greeting = greeting_from(rank_, rank, nonce);
  its.greeting_left = object_bytes(its.greeting);
  start_records(rank, its, Direction::out);
  its.socket = begin_to_connect({.storage = other.card.address, .length = other.card.address_length});
  if (!its.socket.is_open()) {
    lose(rank, fmt::format("rank {} cannot connect to rank {} at {}: {}", rank_, rank, place_of(rank),
                           in_words(errno)));
    return;
  }
  end_when_silent(its.socket, settings_.timeout);
  its.waits_to_write = true;
  ++busy_;
  watch(its.socket, Source::out, rank, true, true);
}

void Connections::finish_connecting(int rank) {
  Connection& its = peer(rank).out;
  int error = 0;
  socklen_t length = sizeof(error);
  getsockopt(its.socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error == 0) {
    its.is_connected = true;
    return;
  }
  lose(rank, fmt::format("rank {} cannot connect to rank {} at {}: {}", rank_, rank, place_of(rank),
                         in_words(error)));
}

void Connections::flush(int rank, Direction direction) {
  Connection& its = connection(rank, direction);
  if (!its.socket.is_open() || !its.is_connected || its.error != 0) return;
  Progress progress = tcp::send(its.socket, its.greeting_left);
  if (progress == Progress::complete) progress = its.writer->flush(its.socket);
  // Its end is noticed where it is read, after what the other has said before.
  if (progress == Progress::closed) its.error = errno;
  const bool waits = progress == Progress::halfway;
  if (waits == its.waits_to_write) return;
  its.waits_to_write = waits;
  busy_ += waits ? 1 : -1;
  watch(its.socket, direction == Direction::out ? Source::out : Source::in, rank, waits, false);
}

void Connections::tell(int rank, Direction direction, const Header& header) {
  connection(rank, direction).writer->add(header);
  flush(rank, direction);
}

void Connections::send(int rank, const Header& header, std::vector<std::byte> body) {
  Connection& its = peer(rank).out;
  if (!its.socket.is_open()) return;  // it could not even begin to connect
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(body));
  its.writer->add(header, *kept, kept);
  if (!its.waits_to_write) flush(rank, Direction::out);
}

bool Connections::is_reached(int rank) const {
  const Connection& its = peer(rank).out;
  return its.is_connected && its.greeting_left.empty();
}

void Connections::accept() {
  for (int i = 0; i < most_at_once; ++i) {
    Descriptor socket = accept_at(listener_);
    if (!socket.is_open()) return;
    if (strangers_.size() >= most_unknown + peers_.size()) {
      const int oldest = strangers_.begin()->first;
      hear_stranger(oldest);  // a rank has greeted by now
      strangers_.erase(oldest);
    }
    end_when_silent(socket, settings_.timeout);
    const int number = ++strangers_made_;
    watch(socket, Source::stranger, number, false, true);
    strangers_[number].socket = std::move(socket);
  }
}

void Connections::hear_stranger(int number) {
  const auto found = strangers_.find(number);
  if (found == strangers_.end()) return;
  Stranger& stranger = found->second;
  std::span<std::byte> rest = writable_object_bytes(stranger.greeting).subspan(stranger.taken);
  const Progress progress = tcp::receive(stranger.socket, rest);
  stranger.taken = sizeof(Greeting) - rest.size();
  const std::size_t marked = std::min(stranger.taken, mesh_mark.size());
  const bool is_ours = std::memcmp(stranger.greeting.mark.data(), mesh_mark.data(), marked) == 0;
  if (progress == Progress::halfway && is_ours) return;
  if (progress == Progress::complete && is_ours) admit(stranger);
  strangers_.erase(found);
}

void Connections::admit(Stranger& stranger) {
  const Greeting& given = stranger.greeting;
  if (given.to != rank_ || given.from == rank_ || given.from < 0 ||
      given.from >= static_cast<int>(peers_.size()))
    return;
  const Greeting expected = greeting_from(given.from, rank_, given.nonce);
  Peer& other = peer(given.from);
  // One that comes twice may be a copy that somebody has made.
  if (!are_equal(given.digest, expected.digest) || other.in.writer || !other.loss.empty()) return;
  other.in.socket = std::move(stranger.socket);
  other.in.greeting = given;
  other.in.is_connected = true;
  start_records(given.from, other.in, Direction::in);
  watch(other.in.socket, Source::in, given.from, false, false);
}

void Connections::pump() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto source = static_cast<Source>(event.data.u64 >> 32U);
      const auto number = static_cast<int>(event.data.u64 & UINT32_MAX);
      if (source == Source::listener) {
        accept();
      } else if (source == Source::stranger) {
        hear_stranger(number);
      } else {
        hear(number, source == Source::out ? Direction::out : Direction::in);
      }
    }
    if (count < static_cast<int>(events.size())) break;
  }
  if (suspects_ > 0) judge_suspects();
}

void Connections::wait(std::chrono::milliseconds longest) const {
  pollfd any{.fd = epoll_.number(), .events = POLLIN, .revents = 0};
  poll(&any, 1, static_cast<int>(longest.count()));
}

void Connections::hear(int rank, Direction direction) {
  Connection& its = connection(rank, direction);
  if (its.socket.is_open() && !its.is_connected) finish_connecting(rank);
  if (its.waits_to_write) flush(rank, direction);
  while (its.socket.is_open()) {
    Progress progress = its.reader->receive_header(its.socket);
    if (progress == Progress::complete) progress = its.reader->receive_body(its.socket);
    const bool is_halfway = progress == Progress::halfway && its.reader->is_halfway();
    busy_ += (is_halfway ? 1 : 0) - (its.is_halfway ? 1 : 0);
    its.is_halfway = is_halfway;
    if (progress == Progress::halfway) return;
    if (progress == Progress::closed) {
      const int error = errno;
      return end_connection(rank, direction, its.error != 0 ? its.error : error);
    }
    const Header header = its.reader->header();
    receiver_.take_frame(rank, direction, header, its.reader->take_body());
  }
}

void Connections::end_connection(int rank, Direction direction, int error) {
  Connection& its = connection(rank, direction);
  const bool is_forged = its.reader->is_forged();
  close(its);
  if (is_forged) {
    lose(rank,
         fmt::format("what came from rank {} at {} was not what it had sent: somebody changes packets, or "
                     "memory is faulty",
                     rank, place_of(rank)));
  } else if (is_silence(error)) {
    lose(rank,
         fmt::format("rank {} at {} has not answered for {:.1f} s: its host is down, its process is stopped, "
                     "or the network between is cut ({})",
                     rank, place_of(rank), in_seconds(settings_.timeout), in_words(error)));
  } else {
    suspect(rank, fmt::format("rank {} is gone: its connection, {}, has been closed{}", rank, place_of(rank),
                              error == 0 ? "" : " (" + in_words(error) + ")"));
  }
}

void Connections::close(Connection& its) {
  busy_ -= (its.waits_to_write ? 1 : 0) + (its.is_halfway ? 1 : 0);
  its.waits_to_write = its.is_halfway = false;
  its.socket.close();
}

void Connections::suspect(int rank, const std::string& reason) {
  Peer& other = peer(rank);
  const bool was_last = !other.out.socket.is_open() && !other.in.socket.is_open();
  if (was_last || !other.suspicion.empty()) return lose(rank, reason);
  if (!other.loss.empty()) return;
  other.suspicion = reason;
  other.suspected_until = Clock::now() + std::min<std::chrono::milliseconds>(settings_.timeout / 4, 1s);
  ++suspects_;
}

void Connections::judge_suspects() {
  const auto now = Clock::now();
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& other = peer(rank);
    if (!other.suspicion.empty() && other.loss.empty() && now >= other.suspected_until)
      lose(rank, std::string(other.suspicion));
  }
}

void Connections::lose(int rank, const std::string& reason) {
  Peer& other = peer(rank);
  if (!other.loss.empty()) return;
  other.loss = reason;
  ++losses_;
  if (!other.suspicion.empty()) --suspects_;
  for (Connection* const its : {&other.out, &other.in}) {
    if (its->socket.is_open()) close(*its);
  }
  receiver_.take_loss(rank);
}

}  // namespace tutti::tcp
