// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/sockets.hpp"
#include "os/descriptor.hpp"
#include "tutti/error.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The messages of processes that have accepted one another.
namespace tutti::tcp {

struct Header {
  /// A note is a text that may come before any other frame. To rank 0 an empty one asks what a rank is
  /// waiting for, and any other one says that it waits no longer; rank 0 answers who is missing.
  enum class Kind : std::uint32_t { bytes, failure, note };
  Kind kind = Kind::bytes;
  std::uint32_t code = 0;  ///< of a failure
  std::uint64_t length = 0;
};

/// A header and the body that it announces, received piece by piece.
class Frame {
 public:
  /// Begins a new frame, whose body is to have so many bytes.
  void expect(std::uint64_t length);
  /// Receives what has arrived, without waiting, and keeps notes for `take_note`. Also complete if another
  /// number of bytes is announced than expected; these bytes are not read.
  [[nodiscard]] Progress receive(const Descriptor& socket);
  [[nodiscard]] const Header& header() const noexcept { return header_; }
  [[nodiscard]] std::span<const std::byte> body() const noexcept { return body_; }
  [[nodiscard]] bool is_as_expected() const noexcept {
    return header_.kind == Header::Kind::bytes && header_.length == expected_;
  }
  /// Throws the failure that the frame reports, if it is one.
  void rethrow() const;
  /// Returns the last note that has arrived since the last call.
  [[nodiscard]] std::optional<std::string> take_note();

 private:
  [[nodiscard]] Progress receive_one(const Descriptor& socket);
  [[nodiscard]] std::string text() const;

  std::uint64_t expected_ = 0;
  Header header_;
  std::vector<std::byte> body_;
  std::size_t taken_ = 0;  ///< of header and body
  bool is_complete_ = false;
  std::optional<std::string> note_;
};

/// A connection to a process that has been accepted, and the frame that arrives on it.
struct Line {
  Descriptor socket;
  Frame incoming;
  bool has_asked = false;  ///< what it is waiting for
};

/// Sends header and body; returns half-way only if the wait is over.
[[nodiscard]] Progress send_frame(const Descriptor& socket, std::span<const std::byte> bytes,
                                  const Wait& wait);
/// Makes the header of so many bytes.
[[nodiscard]] Header header_of(std::size_t length);
/// Sends a failure as far as that takes no waiting; so does `send_note`. Nothing may follow half a note.
void send_failure(const Descriptor& socket, ErrorCode code, std::string_view message);
Progress send_note(const Descriptor& socket, std::string_view text);

}  // namespace tutti::tcp
