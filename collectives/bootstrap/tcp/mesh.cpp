// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/mesh.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
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

Mesh::Mesh(tutti::Exchange& exchange, const Settings& settings)
    : rank_(exchange.rank()),
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
  watch(listener_, Which::listener, 0, false, true);
}

Mesh::~Mesh() {
  const std::scoped_lock lock(mutex_);
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

std::uint64_t Mesh::new_number() {
  const std::scoped_lock lock(mutex_);
  return (static_cast<std::uint64_t>(rank_) << 32U) + ++numbers_;
}

void Mesh::begin(std::uint64_t network, std::span<const int> ranks) {
  const std::scoped_lock lock(mutex_);
  boxes_[network].ranks.assign(ranks.begin(), ranks.end());
}

void Mesh::end(std::uint64_t network) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto box = boxes_.find(network);
  if (box == boxes_.end()) return;
  try {
    std::set<int> heard;  // those that may still send to it
    for (const int rank : box->second.ranks) {
      if (tell_of_leaving(rank, network) && box->second.accounts[rank].may_send) heard.insert(rank);
    }
    if (!heard.empty()) ended_[network] = std::move(heard);
  } catch (const std::exception&) {
    // Memory is short. The others hear of it when the process ends.
  }
  boxes_.erase(box);
}

bool Mesh::tell_of_leaving(int rank, std::uint64_t network) {
  const bool has_out = peer(rank).out.socket.is_open();
  const bool has_in = peer(rank).in.socket.is_open();
  if (has_out) tell(rank, Which::out, {.kind = Header::Kind::leave, .network = network});
  if (has_in)
    tell(rank, Which::in, {.kind = Header::Kind::leave, .code = has_out ? 1U : 0U, .network = network});
  return has_out || has_in;
}

// --- Connections ---------------------------------------------------------------------------------------

const Key& Mesh::key_with(int rank) {
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

Protection Mesh::protection_with(int rank) const {
  return agreed(offer_, peers_[static_cast<std::size_t>(rank)].card.offer);
}

Mesh::Greeting Mesh::greeting_from(int from, int to, const Key& nonce) {
  const Key& key = key_with(from == rank_ ? to : from);
  return {.mark = mesh_mark,
          .from = from,
          .to = to,
          .nonce = nonce,
          .digest = digest_of(key, {bytes_of(of_greeting), object_bytes(from), object_bytes(to), nonce})};
}

void Mesh::start_records(int rank, Connection& its, Which which) {
  const Key& key = key_with(rank);
  const Key messages = digest_of(key, {bytes_of(of_messages), its.greeting.digest});
  const Key answers = digest_of(key, {bytes_of(of_answers), its.greeting.digest});
  const Protection protection = protection_with(rank);
  its.writer.emplace(Seal(which == Which::out ? messages : answers, protection));
  its.reader.emplace(Seal(which == Which::out ? answers : messages, protection));
}

void Mesh::watch(const Descriptor& socket, Which which, int number, bool writes, bool is_new) const {
  epoll_event event{};
  event.events = EPOLLIN | (writes ? EPOLLOUT : 0U);
  event.data.u64 = (static_cast<std::uint64_t>(which) << 32U) + static_cast<std::uint32_t>(number);
  if (epoll_ctl(epoll_.number(), is_new ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket.number(), &event) != 0) {
    throw Error(ErrorCode::transport_failure, fmt::format("epoll_ctl: {}", in_words(errno)), errno);
  }
}

std::string Mesh::place_of(int rank) const {
  const Card& card = peers_[static_cast<std::size_t>(rank)].card;
  return Address{.storage = card.address, .length = card.address_length}.text();
}

void Mesh::connect(int rank) {
  Peer& other = peer(rank);
  Connection& its = other.out;
  Key nonce{};
  draw(nonce);
  its.greeting = greeting_from(rank_, rank, nonce);
  its.greeting_left = object_bytes(its.greeting);
  start_records(rank, its, Which::out);
  its.socket = begin_to_connect({.storage = other.card.address, .length = other.card.address_length});
  if (!its.socket.is_open()) {
    lose(rank, fmt::format("rank {} cannot connect to rank {} at {}: {}", rank_, rank, place_of(rank),
                           in_words(errno)));
    return;
  }
  end_when_silent(its.socket, settings_.timeout);
  its.waits_to_write = true;
  ++busy_;
  watch(its.socket, Which::out, rank, true, true);
}

void Mesh::continue_connecting(int rank) {
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

void Mesh::flush(int rank, Which which) {
  Connection& its = connection(rank, which);
  if (!its.socket.is_open() || !its.is_connected || its.error != 0) return;
  Progress progress = tcp::send(its.socket, its.greeting_left);
  if (progress == Progress::complete) progress = its.writer->flush(its.socket);
  // Its end is noticed where it is read, after what the other has said before.
  if (progress == Progress::closed) its.error = errno;
  const bool waits = progress == Progress::halfway;
  if (waits == its.waits_to_write) return;
  its.waits_to_write = waits;
  busy_ += waits ? 1 : -1;
  watch(its.socket, which, rank, waits, false);
}

void Mesh::tell(int rank, Which which, const Header& header) {
  connection(rank, which).writer->add(header);
  flush(rank, which);
}

void Mesh::accept() {
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
    watch(socket, Which::stranger, number, false, true);
    strangers_[number].socket = std::move(socket);
  }
}

void Mesh::hear_stranger(int number) {
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

void Mesh::admit(Stranger& stranger) {
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
  start_records(given.from, other.in, Which::in);
  watch(other.in.socket, Which::in, given.from, false, false);
}

// --- What happens on connections -----------------------------------------------------------------------

void Mesh::pump() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.number(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const auto which = static_cast<Which>(event.data.u64 >> 32U);
      const auto number = static_cast<int>(event.data.u64 & UINT32_MAX);
      if (which == Which::listener) {
        accept();
      } else if (which == Which::stranger) {
        hear_stranger(number);
      } else {
        hear(number, which);
      }
    }
    if (count < static_cast<int>(events.size())) break;
  }
  if (suspects_ > 0) judge_suspects();
}

void Mesh::hear(int rank, Which which) {
  Connection& its = connection(rank, which);
  if (its.socket.is_open() && !its.is_connected) continue_connecting(rank);
  if (its.waits_to_write) flush(rank, which);
  while (its.socket.is_open()) {
    Progress progress = its.reader->receive_header(its.socket);
    if (progress == Progress::complete) progress = its.reader->receive_body(its.socket);
    const bool is_halfway = progress == Progress::halfway && its.reader->is_halfway();
    busy_ += (is_halfway ? 1 : 0) - (its.is_halfway ? 1 : 0);
    its.is_halfway = is_halfway;
    if (progress == Progress::halfway) return;
    if (progress == Progress::closed) {
      const int error = errno;
      return end_connection(rank, which, its.error != 0 ? its.error : error);
    }
    const Header header = its.reader->header();
    take_frame(rank, which, header, its.reader->take_body());
  }
}

void Mesh::take_frame(int rank, Which which, const Header& header, std::vector<std::byte> body) {
  using Kind = Header::Kind;
  if (header.kind == Kind::leave) return take_leave(rank, header.network, header.code != 0);
  if (ended_.contains(header.network)) return;
  if (which == Which::out) {
    const auto box = boxes_.find(header.network);
    if (header.kind == Kind::count && box != boxes_.end()) box->second.accounts[rank].counted = header.number;
    return;
  }
  Box& box = boxes_[header.network];  // which may begin here later
  if (header.kind == Kind::bytes) box.arrived.push_back({.source = rank, .bytes = std::move(body)});
}

void Mesh::take_leave(int rank, std::uint64_t network, bool is_copy) {
  if (const auto ended = ended_.find(network); ended != ended_.end()) {
    if (is_copy) return;
    ended->second.erase(rank);
    if (ended->second.empty()) ended_.erase(ended);
  } else if (!is_copy || boxes_.contains(network)) {
    Account& account = boxes_[network].accounts[rank];
    account.has_left = true;
    if (!is_copy) account.may_send = false;
  }
}

void Mesh::end_connection(int rank, Which which, int error) {
  Connection& its = connection(rank, which);
  const bool is_forged = its.reader->is_forged();
  its.socket.close();
  busy_ -= (its.waits_to_write ? 1 : 0) + (its.is_halfway ? 1 : 0);
  its.waits_to_write = its.is_halfway = false;
  if (is_forged) {
    lose(rank,
         fmt::format("what came from rank {} at {} was not what it had sent: somebody changes packets, or "
                     "memory is faulty",
                     rank, place_of(rank)));
  } else if (is_silence(error)) {
    lose(rank, fmt::format("rank {} at {} has not answered for {:.1f} s: its host is down, or the network "
                           "between is cut ({})",
                           rank, place_of(rank), in_seconds(settings_.timeout), in_words(error)));
  } else {
    const std::string reason = fmt::format("rank {} is gone: its connection, {}, has been closed{}", rank,
                                           place_of(rank), error == 0 ? "" : " (" + in_words(error) + ")");
    Peer& other = peer(rank);
    const bool is_last = !other.out.socket.is_open() && !other.in.socket.is_open();
    if (is_last || !other.suspicion.empty()) return lose(rank, reason);
    if (!other.loss.empty()) return;
    other.suspicion = reason;
    other.suspected_until = Clock::now() + std::min<std::chrono::milliseconds>(settings_.timeout / 4, 1s);
    ++suspects_;
  }
}

void Mesh::judge_suspects() {
  const auto now = Clock::now();
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    const Peer& other = peer(rank);
    if (!other.suspicion.empty() && other.loss.empty() && now >= other.suspected_until)
      lose(rank, std::string(other.suspicion));
  }
}

void Mesh::lose(int rank, const std::string& reason) {
  Peer& other = peer(rank);
  if (!other.loss.empty()) return;
  other.loss = reason;
  ++losses_;
  if (!other.suspicion.empty()) --suspects_;
  for (Connection* const its : {&other.out, &other.in}) {
    if (!its->socket.is_open()) continue;
    busy_ -= (its->waits_to_write ? 1 : 0) + (its->is_halfway ? 1 : 0);
    its->waits_to_write = its->is_halfway = false;
    its->socket.close();
  }
  for (auto ended = ended_.begin(); ended != ended_.end();) {
    ended->second.erase(rank);
    ended = ended->second.empty() ? ended_.erase(ended) : std::next(ended);
  }
}

// --- What networks ask ---------------------------------------------------------------------------------

void Mesh::require_all_here(const Box& box) {
  for (const int rank : box.ranks) {
    if (rank == rank_ || peer(rank).loss.empty()) continue;
    const auto account = box.accounts.find(rank);
    if (account == box.accounts.end() || !account->second.has_left)
      throw Error(ErrorCode::peer_unavailable, peer(rank).loss);
  }
}

void Mesh::require_reached(std::span<const int> ranks) {
  for (const int rank : ranks) {
    if (!peer(rank).loss.empty()) throw Error(ErrorCode::peer_unavailable, peer(rank).loss);
  }
}

void Mesh::reach(std::span<const int> ranks) {
  // Meanwhile the others wait at most for the timeout, and are to hear the reason.
  const std::chrono::milliseconds limit = settings_.timeout * 3 / 4;
  const auto end = Clock::now() + limit;
  std::unique_lock lock(mutex_);
  for (const int rank : ranks) {
    if (!peer(rank).out.writer && peer(rank).loss.empty()) connect(rank);
  }
  for (;;) {
    pump();
    require_reached(ranks);
    const auto is_open = [this](int rank) {
      return peer(rank).out.is_connected && peer(rank).out.greeting_left.empty();
    };
    const auto closed = std::ranges::find_if_not(ranks, is_open);
    if (closed == ranks.end()) return;
    if (Clock::now() >= end) {
      throw Error(
          ErrorCode::peer_unavailable,
          fmt::format("rank {} cannot connect to rank {} at {} within {:.1f} s: is there a way from host to "
                      "host, and does it let any port through?",
                      rank_, *closed, place_of(*closed), in_seconds(limit)));
    }
    lock.unlock();
    pollfd any{.fd = epoll_.number(), .events = POLLIN, .revents = 0};
    poll(&any, 1, 10);
    lock.lock();
  }
}

void Mesh::send(std::uint64_t network, int target, std::vector<std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  Account& account = boxes_[network].accounts[target];
  Peer& other = peer(target);
  if (account.has_left || !other.loss.empty()) return;
  if (!other.out.writer) connect(target);
  ++account.sent;
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  other.out.writer->add({.kind = Header::Kind::bytes, .network = network}, *kept, kept);
  if (!other.out.waits_to_write) flush(target, Which::out);
}

std::optional<Network::Message> Mesh::receive(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  Box& box = boxes_[network];
  if (box.arrived.empty()) pump();
  const bool is_empty = box.arrived.empty();
  if (is_empty && box.was_empty) settle(network, box);
  box.was_empty = is_empty;
  if (is_empty) {
    if (losses_ > 0) require_all_here(box);
    return std::nullopt;
  }
  Network::Message message = std::move(box.arrived.front());
  box.arrived.pop_front();
  Account& account = box.accounts[message.source];
  ++account.received;
  account.is_owed = box.owes = true;
  return message;
}

void Mesh::settle(std::uint64_t network, Box& box) {
  if (!box.owes) return;
  for (auto& [rank, account] : box.accounts) {
    if (!account.is_owed) continue;
    account.is_owed = false;
    if (peer(rank).in.socket.is_open())
      tell(rank, Which::in, {.kind = Header::Kind::count, .network = network, .number = account.received});
  }
  box.owes = false;
}

bool Mesh::is_delivered(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  Box& box = boxes_[network];
  settle(network, box);
  pump();
  return std::ranges::all_of(box.accounts, [this](const auto& entry) {
    const auto& [rank, account] = entry;
    return account.sent == account.counted || account.has_left || !peer(rank).loss.empty();
  });
}

bool Mesh::is_busy(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  settle(network, boxes_[network]);
  return busy_ > 0;
}

}  // namespace tutti::tcp
