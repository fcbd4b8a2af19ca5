// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/sockets.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace tutti::tcp {
namespace {

constexpr std::chrono::milliseconds between_looks{10};

[[noreturn]] void fail_to_listen(const Rendezvous& rendezvous, int error) {
  if (error == EADDRINUSE) {
    throw Error(ErrorCode::transport_failure,
                fmt::format("{} is {}: another program has taken it at {}, expected a port that is free",
                            rendezvous.port_name, rendezvous.port, rendezvous.address),
                error);
  }
  if (error == EADDRNOTAVAIL) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is '{}', which is no address of this host, expected one: rank 0 runs here",
                            rendezvous.address_name, rendezvous.address),
                error);
  }
  throw Error(ErrorCode::transport_failure,
              fmt::format("rank 0 cannot listen at {}: {}", place_of(rendezvous),
                          std::system_category().message(error)),
              error);
}

Descriptor make_socket(const Address& address) {
  return Descriptor(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

const sockaddr* pointer_to(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

void set_option(const Descriptor& socket, int level, int option, int value = 1) {
  setsockopt(socket.number(), level, option, &value, sizeof(value));
}

/// A socket that waits for somebody to listen at a port which the system also gives to those who connect may
/// be given that very port, and then TCP connects it to itself.
bool is_connected_to_itself(const Descriptor& socket) {
  Address own;
  Address other;
  own.length = other.length = sizeof(sockaddr_storage);
  return getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) == 0 &&
         getpeername(socket.number(), reinterpret_cast<sockaddr*>(&other.storage), &other.length) == 0 &&
         own.length == other.length && std::memcmp(&own.storage, &other.storage, own.length) == 0;
}

/// Closes it so that its port is free at once.
void reset(Descriptor& socket) {
  const linger none{.l_onoff = 1, .l_linger = 0};
  setsockopt(socket.number(), SOL_SOCKET, SO_LINGER, &none, sizeof(none));
  socket.close();
}

/// Waits until the system has answered; false if nobody listens there, or time is over.
bool is_connected(const Descriptor& socket, const Wait& wait, std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (;;) {
    pollfd one{.fd = socket.number(), .events = POLLOUT, .revents = 0};
    wait.until_ready({&one, 1});
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return false;
    if ((one.revents & POLLOUT) != 0) return true;
    if (wait.is_over() || std::chrono::steady_clock::now() >= end) return false;
  }
}

template <class Step, class Bytes>
Progress all_of(const Descriptor& socket, Bytes bytes, short events, const Wait& wait, Step step) {
  for (;;) {
    const Progress progress = step(socket, bytes);
    if (progress != Progress::halfway || wait.is_over()) return progress;
    wait.until_ready(socket, events);
  }
}

}  // namespace

void Wait::until_ready(std::span<pollfd> sockets) const {
  const auto at_most = std::clamp(std::chrono::ceil<std::chrono::milliseconds>(left()),
                                  std::chrono::milliseconds(0), between_looks);
  poll(sockets.data(), sockets.size(), static_cast<int>(at_most.count()));
  if (watch_) watch_();
}

void Wait::until_ready(const Descriptor& socket, short events) const {
  pollfd one{.fd = socket.number(), .events = events, .revents = 0};
  until_ready({&one, 1});
}

bool Address::is_loopback() const noexcept {
  if (storage.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &storage, sizeof(address));
    return (ntohl(address.sin_addr.s_addr) >> 24U) == 127;
  }
  sockaddr_in6 address{};
  std::memcpy(&address, &storage, sizeof(address));
  return storage.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
}

std::string Address::text() const {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  const int status = getnameinfo(pointer_to(*this), length, host.data(), host.size(), port.data(),
                                 port.size(), NI_NUMERICHOST | NI_NUMERICSERV);
  if (status != 0) return "an unknown address";
  const bool is_long = storage.ss_family == AF_INET6;
  return is_long ? fmt::format("[{}]:{}", host.data(), port.data())
                 : fmt::format("{}:{}", host.data(), port.data());
}

Address own_address_of(const Descriptor& socket) {
  Address own{.length = sizeof(sockaddr_storage)};
  if (getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own.storage), &own.length) != 0)
    own.length = 0;
  return own;
}

std::vector<Address> addresses_of(const Rendezvous& rendezvous) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int status =
      getaddrinfo(rendezvous.address.c_str(), std::to_string(rendezvous.port).c_str(), &wanted, &found);
  if (status != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is '{}', expected the name or the number of rank 0's host: {}",
                            rendezvous.address_name, rendezvous.address, gai_strerror(status)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Address address{.length = entry->ai_addrlen};
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    addresses.push_back(address);
  }
  return addresses;
}

std::vector<Address> checked_addresses_of(const Rendezvous& rendezvous, std::string_view function,
                                          std::string_view secret_name) {
  constexpr std::size_t shortest_secret = 16;
  const auto require = [](bool is_good, const std::string& what) {
    if (!is_good) throw Error(ErrorCode::invalid_argument, what);
  };
  require(rendezvous.port >= 1 && rendezvous.port <= 65535,
          fmt::format("{}: {} is {}, expected 1 to 65535", function, rendezvous.port_name, rendezvous.port));
  require(rendezvous.timeout > std::chrono::milliseconds(0),
          fmt::format("{}: timeout is {} ms, expected more than 0", function, rendezvous.timeout.count()));
  std::vector<Address> addresses = addresses_of(rendezvous);
  require(
      !rendezvous.secret.empty() || std::ranges::all_of(addresses, &Address::is_loopback),
      fmt::format("{} is not set, expected {} bytes or more, the same on all ranks: {} is '{}', which other "
                  "hosts may reach",
                  secret_name, shortest_secret, rendezvous.address_name, rendezvous.address));
  require(rendezvous.secret.empty() || rendezvous.secret.size() >= shortest_secret,
          fmt::format("{} has {} byte(s), expected {} or more", secret_name, rendezvous.secret.size(),
                      shortest_secret));
  return addresses;
}

std::string place_of(const Rendezvous& rendezvous) {
  return fmt::format("{}:{} ({}, {})", rendezvous.address, rendezvous.port, rendezvous.address_name,
                     rendezvous.port_name);
}

Descriptor listen_at(const std::vector<Address>& addresses, const Rendezvous& rendezvous) {
  int error = EADDRNOTAVAIL;
  for (const Address& address : addresses) {
    Descriptor listener = make_socket(address);
    if (!listener.is_open()) {
      error = errno;
      continue;
    }
    set_option(listener, SOL_SOCKET, SO_REUSEADDR);  // of an earlier run that has ended
    if (bind(listener.number(), pointer_to(address), address.length) == 0 &&
        listen(listener.number(), SOMAXCONN) == 0)
      return listener;
    error = errno;
    if (error != EADDRNOTAVAIL) break;
  }
  fail_to_listen(rendezvous, error);
}

Descriptor listen_somewhere(Address& address) {
  // The port's place is the same for both families.
  reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = 0;
  Descriptor listener = make_socket(address);
  if (!listener.is_open() || bind(listener.number(), pointer_to(address), address.length) != 0 ||
      listen(listener.number(), SOMAXCONN) != 0)
    return {};
  address = own_address_of(listener);
  return listener;
}

Descriptor begin_to_connect(const Address& address) {
  Descriptor socket = make_socket(address);
  if (!socket.is_open()) return socket;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  if (connect(socket.number(), pointer_to(address), address.length) != 0 && errno != EINPROGRESS &&
      errno != EINTR)
    return {};
  return socket;
}

void end_when_silent(const Descriptor& socket, std::chrono::milliseconds time) {
  constexpr int probes = 3;
  const auto limit = static_cast<int>(std::min<std::chrono::milliseconds::rep>(time.count(), INT_MAX));
  const int seconds = limit / 1000;
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::clamp(seconds / 2, 1, 3600));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::clamp(seconds / 2 / probes, 1, 3600));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, std::max(limit, 1));
}

Descriptor connect_to(const Address& address, const Wait& wait, std::chrono::milliseconds patience) {
  Descriptor socket = make_socket(address);
  if (!socket.is_open()) return socket;
  set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  set_option(socket, SOL_SOCKET, SO_REUSEADDR);  // it keeps no port from rank 0, should it get rank 0's
  if (connect(socket.number(), pointer_to(address), address.length) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return {};
    if (!is_connected(socket, wait, patience)) return {};
  }
  if (is_connected_to_itself(socket)) reset(socket);
  return socket;
}

Descriptor accept_at(const Descriptor& listener) {
  Descriptor socket(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.is_open()) set_option(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

bool is_passing(int error) noexcept {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

Progress receive(const Descriptor& socket, std::span<std::byte>& rest) {
  while (!rest.empty()) {
    const ssize_t count = recv(socket.number(), rest.data(), rest.size(), 0);
    if (count < 0 && is_passing(errno)) return Progress::halfway;
    if (count <= 0) return Progress::closed;
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
  return Progress::complete;
}

Progress send(const Descriptor& socket, std::span<const std::byte>& rest) {
  while (!rest.empty()) {
    const ssize_t count = ::send(socket.number(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0 && is_passing(errno)) return Progress::halfway;
    if (count < 0) return Progress::closed;
    rest = rest.subspan(static_cast<std::size_t>(count));
  }
  return Progress::complete;
}

Progress receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Wait& wait) {
  return all_of(socket, bytes, POLLIN, wait, receive);
}

Progress send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait) {
  return all_of(socket, bytes, POLLOUT, wait, send);
}

}  // namespace tutti::tcp
