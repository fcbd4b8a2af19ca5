// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/descriptor.hpp"
#include "tutti/nccl_api.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <netinet/in.h>
#include <sys/socket.h>

/// Defines how processes meet that know a unique id: the messages to the process that has made the id, and
/// its answers. All numbers are in the byte order of the machine: a job's machines have one.
namespace tutti::nccl_api {

using Token = std::array<std::byte, 32>;

/// The content of a unique id: where the meeting is, and the secret that lets in.
struct MeetingAddress {
  std::array<char, 8> mark{};
  Token token{};
  std::uint32_t family = AF_INET;
  std::uint16_t port = 0;               ///< in network order
  std::array<std::byte, 16> address{};  ///< in network order; 4 bytes of it for AF_INET
};
static_assert(sizeof(MeetingAddress) <= NCCL_UNIQUE_ID_BYTES && std::is_trivially_copyable_v<MeetingAddress>);

inline constexpr std::array<char, 8> meeting_mark{'t', 'u', 't', 't', 'i', 'I', 'D', '1'};

/// Describes a rank to the others before they make a communicator.
struct Facts {
  std::array<std::uint64_t, 2> host{};  ///< identifies the host
  std::uint64_t process = 0;            ///< identifies the process on its host
  std::uint64_t thread = 0;             ///< identifies the thread that makes the ranks in the process
  friend bool operator==(const Facts&, const Facts&) = default;
};

/// Says that a rank needs NCCL for its communicator, and why.
enum class Need : std::int32_t {
  none,
  always,     ///< `TUTTI_NCCL_FALLBACK` says so
  one_sided,  ///< the configuration asks for one-sided calls
};

/// Tells what a party comes to a meeting for.
enum class Purpose : std::int32_t {
  make,      ///< to make a communicator
  grow,      ///< to make one of the ranks of another one and new ones
  call_off,  ///< to say that the ranks of a communicator let nobody in, or that a part of it cannot be made
};

/// Ranks `first` to `first + count - 1`, which one thread makes together.
struct Party {
  std::int32_t first = 0;
  std::int32_t count = 0;
  Facts facts{};
  Need need = Need::none;
  std::int32_t members = 0;  ///< so many of them, the first ones, are ranks of the communicator that grows
};

struct Arrival {
  Token token{};
  std::uint32_t version = 2;
  std::int32_t ranks = 0;
  Party party{};
  Purpose purpose = Purpose::make;
  std::int32_t unused = 0;
};

/// Stands before every message to the host of the meeting: an `Arrival` first, then the sender's part of each
/// exchange. The answer, an `MeetingAnswer` and its bytes, comes when all have sent theirs.
struct MeetingMessage {
  std::uint64_t bytes = 0;
  std::int64_t timeout_ms = 0;  ///< after which the meeting fails, unless all have sent theirs
};
struct MeetingAnswer {
  std::uint64_t bytes = 0;
  std::int32_t result = ncclSuccess;  ///< else the bytes are a sentence
};

inline constexpr std::uint64_t longest_message = std::uint64_t{64} << 20U;

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  [[nodiscard]] const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
};

/// Returns the address that the id names.
[[nodiscard]] inline SocketAddress socket_address(const MeetingAddress& meeting) noexcept {
  SocketAddress result;
  if (meeting.family == AF_INET) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = meeting.port;
    std::memcpy(&address.sin_addr, meeting.address.data(), sizeof(address.sin_addr));
    std::memcpy(&result.storage, &address, sizeof(address));
    result.length = sizeof(address);
    return result;
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = meeting.port;
  std::memcpy(&address.sin6_addr, meeting.address.data(), sizeof(address.sin6_addr));
  std::memcpy(&result.storage, &address, sizeof(address));
  result.length = sizeof(address);
  return result;
}

/// Returns the facts of this process and the calling thread.
[[nodiscard]] Facts own_facts();

}  // namespace tutti::nccl_api
