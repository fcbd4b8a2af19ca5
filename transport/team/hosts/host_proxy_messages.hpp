// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

/// Serialises the messages between ranks of different hosts.
namespace tutti::transport::team {

/// The kind of a record within a message.
enum class MessageRecord : std::uint32_t {
  state,
  call,
  mail,
  progress,
  parcel,
  abort,
  watched,
  gossip,
  link_log,
  link_piece,
  link_taken,
  last_message,
};

class MessageWriter {
 public:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    add_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void add_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::vector<std::byte> take() { return std::exchange(bytes_, {}); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads the records of a message. Throws Error(internal) if the message is malformed.
class MessageReader {
 public:
  explicit MessageReader(const Network::Message& message) : rest_(message.bytes), source_(message.source) {}
  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  template <class T>
  [[nodiscard]] T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    std::memcpy(&value, take_bytes(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// Reads a number and requires it to be below `limit`.
  template <class T>
  [[nodiscard]] T take_below(std::uint64_t limit) {
    const T value = take<T>();
    if (value >= limit) fail();
    return value;
  }
  [[nodiscard]] std::span<const std::byte> take_bytes(std::size_t count) {
    if (count > rest_.size()) fail();
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  [[noreturn]] void fail() const {
    throw Error(ErrorCode::internal, fmt::format("a message of rank {} is malformed", source_));
  }

 private:
  std::span<const std::byte> rest_;
  int source_;
};

}  // namespace tutti::transport::team
