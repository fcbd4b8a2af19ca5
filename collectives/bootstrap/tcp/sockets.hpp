// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/socket.h>

namespace tutti::tcp {

/// Waits for sockets, no longer than a timeout in total, and calls a watch meanwhile.
class Wait {
 public:
  Wait(std::chrono::milliseconds timeout, const Exchange::Watch& watch)
      : end_(std::chrono::steady_clock::now() + timeout), watch_(watch) {}

  [[nodiscard]] bool is_over() const noexcept { return left() <= std::chrono::nanoseconds(0); }
  /// Returns how long the wait may still last.
  [[nodiscard]] std::chrono::nanoseconds left() const noexcept {
    return end_ - std::chrono::steady_clock::now();
  }
  /// Waits until one of the sockets is ready, or for some ms; what the watch throws is passed on.
  void until_ready(std::span<pollfd> sockets) const;
  void until_ready(const Descriptor& socket, short events) const;

 private:
  std::chrono::steady_clock::time_point end_;
  const Exchange::Watch& watch_;
};

[[nodiscard]] inline double in_seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] bool is_loopback() const noexcept;
  /// Returns "10.0.0.1:29500".
  [[nodiscard]] std::string text() const;
};
/// Returns the address of this end of a connection.
[[nodiscard]] Address own_address_of(const Descriptor& socket);

/// Returns all addresses that the name of the rendezvous stands for. Throws Error(invalid_argument) if there
/// are none.
[[nodiscard]] std::vector<Address> addresses_of(const Rendezvous& rendezvous);
/// Returns these addresses. Throws Error(invalid_argument), on behalf of `function`, also if the port or the
/// timeout is invalid, or the secret, which errors call `secret_name`, is too short for the addresses.
[[nodiscard]] std::vector<Address> checked_addresses_of(const Rendezvous& rendezvous,
                                                        std::string_view function,
                                                        std::string_view secret_name);
/// Names where rank 0 listens: "10.0.0.1:29500 (MASTER_ADDR, MASTER_PORT)".
[[nodiscard]] std::string place_of(const Rendezvous& rendezvous);
/// Listens at the first of the addresses that is one of this host. Throws as the constructor of `Exchange`.
[[nodiscard]] Descriptor listen_at(const std::vector<Address>& addresses, const Rendezvous& rendezvous);
/// Listens at a port of the address that the system chooses, and sets it; a closed descriptor, with errno, if
/// that is impossible.
[[nodiscard]] Descriptor listen_somewhere(Address& address);
/// Begins to connect, without waiting; a closed descriptor, with errno, if that is impossible.
[[nodiscard]] Descriptor begin_to_connect(const Address& address);
/// Has the system end the connection when the other end's has not answered for so long, also while nothing is
/// sent.
void end_when_silent(const Descriptor& socket, std::chrono::milliseconds time);
/// Returns a closed descriptor where nobody listens, or where the system does not hear from there for
/// `patience`: then other addresses have their turn, and the next attempt does not wait for the ever longer
/// pauses at which the system repeats this one.
[[nodiscard]] Descriptor connect_to(const Address& address, const Wait& wait,
                                    std::chrono::milliseconds patience = std::chrono::seconds(2));
/// Returns a connection that somebody has made; a closed one, with errno, if there is none.
[[nodiscard]] Descriptor accept_at(const Descriptor& listener);

/// Returns whether a call that failed with this errno may be repeated later.
[[nodiscard]] bool is_passing(int error) noexcept;

template <class Object>
[[nodiscard]] std::span<const std::byte> object_bytes(const Object& object) {
  return std::as_bytes(std::span(&object, 1));
}
template <class Object>
[[nodiscard]] std::span<std::byte> writable_object_bytes(Object& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}

enum class Progress : std::uint8_t { halfway, complete, closed };
/// Receives without waiting, as `send` sends; `rest` is what is left afterwards.
[[nodiscard]] Progress receive(const Descriptor& socket, std::span<std::byte>& rest);
[[nodiscard]] Progress send(const Descriptor& socket, std::span<const std::byte>& rest);
/// Receives all bytes, as `send_all` sends them, unless the wait ends before: then it returns half-way.
[[nodiscard]] Progress receive_all(const Descriptor& socket, std::span<std::byte> bytes, const Wait& wait);
[[nodiscard]] Progress send_all(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait);

}  // namespace tutti::tcp
