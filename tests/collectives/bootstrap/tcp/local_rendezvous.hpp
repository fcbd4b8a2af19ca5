// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace tutti::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// A foreign socket that listens on a port of the loopback address, chosen by the system.
class Listener {
 public:
  explicit Listener(int backlog = 16) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_in address = loopback(0);
    EXPECT_EQ(bind(socket_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(socket_.number(), backlog), 0);
  }
  [[nodiscard]] int port() const {
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    EXPECT_EQ(getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    return ntohs(address.sin_port);
  }
  [[nodiscard]] const Descriptor& socket_of() const { return socket_; }

 private:
  Descriptor socket_;
};

/// Returns rank 0's rendezvous; those of others differ only in the rank.
inline tcp::Rendezvous local_rendezvous(int size) {
  tcp::Rendezvous rendezvous;
  rendezvous.size = size;
  rendezvous.port = Listener().port();
  rendezvous.secret = "0123456789abcdef";
  rendezvous.job = "a test";
  rendezvous.timeout = std::chrono::seconds(20);
  return rendezvous;
}

inline tcp::Rendezvous as_rank(tcp::Rendezvous rendezvous, int rank) {
  rendezvous.rank = rendezvous.local_rank = rank;
  return rendezvous;
}

/// Connects to rank 0 as soon as it listens.
inline Descriptor connected_to(const tcp::Rendezvous& rendezvous) {
  const sockaddr_in address = loopback(rendezvous.port);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Descriptor line(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  while (connect(line.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("rank 0 does not listen");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return line;
}

/// Connects as a rank that rank 0 admits, and which then waits for the others.
inline Descriptor come(const tcp::Rendezvous& rendezvous) {
  const tcp::Exchange::Watch no_watch;
  Descriptor line = connected_to(rendezvous);
  tcp::Session session;
  EXPECT_EQ(tcp::introduce(line, rendezvous, tcp::Wait(rendezvous.timeout, no_watch), session),
            tcp::Introduction::admitted);
  return line;
}

/// Returns the message of the error that ends `call`; empty if none does.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

/// Runs each function on a thread of its own, until all have ended.
inline void on_threads(const std::vector<std::function<void()>>& work) {
  std::vector<std::jthread> threads;
  for (const auto& one : work) threads.emplace_back(one);
}

/// Runs a function for each rank on a thread of its own.
inline void on_ranks(const tcp::Rendezvous& rendezvous,
                     const std::function<void(const tcp::Rendezvous&)>& work) {
  std::vector<std::function<void()>> all;
  for (int rank = 0; rank < rendezvous.size; ++rank)
    all.emplace_back([=] { work(as_rank(rendezvous, rank)); });
  on_threads(all);
}

/// Joins, and makes one call with all ranks.
inline void meet(const tcp::Rendezvous& rendezvous) {
  tcp::Exchange exchange(rendezvous);
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather({&mine, 1}, all);
}

}  // namespace tutti::test
