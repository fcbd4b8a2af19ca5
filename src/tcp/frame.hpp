// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/descriptor.hpp"
#include "tcp/sockets.hpp"
#include "tutti/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

/// What goes between processes that have let one another in.
namespace tutti::tcp {

struct Header {
  enum class Kind : std::uint32_t { bytes, failure };
  Kind kind = Kind::bytes;
  std::uint32_t code = 0;  ///< of a failure
  std::uint64_t length = 0;
};

/// A header and what it announces, as they come by and by.
class Frame {
 public:
  /// Of bytes, `expected` of them, or of a failure.
  explicit Frame(std::uint64_t expected) : expected_(expected), rest_(as_bytes()) {}
  // Parts of the object are pointed to.
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  /// Without waiting. Complete also where other bytes are announced than are expected: they are left.
  [[nodiscard]] Progress receive(const Descriptor& socket);
  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] std::span<const std::byte> body() const noexcept { return body_; }
  [[nodiscard]] bool is_as_expected() const noexcept {
    return header_.kind == Header::Kind::bytes && header_.length == expected_;
  }
  /// Throws the failure that it is, unless it is none.
  void rethrow() const;

 private:
  std::span<std::byte> as_bytes() { return std::as_writable_bytes(std::span(&header_, 1)); }

  std::uint64_t expected_;
  Header header_;
  std::vector<std::byte> body_;
  std::span<std::byte> rest_;
  bool has_header_ = false;
};

/// Half-way only if the wait is over.
[[nodiscard]] Progress send_frame(const Descriptor& socket, std::span<const std::byte> bytes,
                                  const Wait& wait);
/// As much as can be sent at once: who does not read misses it.
void send_failure(const Descriptor& socket, ErrorCode code, std::string_view message);

}  // namespace tutti::tcp
