// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/frame.hpp"
#include "collectives/bootstrap/tcp/handshake.hpp"
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

namespace tutti::tcp {

/// A connection between rank 0 and another rank, and the frame that arrives on it.
class Line {
 public:
  /// Makes a closed line.
  Line() = default;
  /// `session` is what the handshake on the socket has agreed on.
  Line(Descriptor socket, const Session& session);

  [[nodiscard]] const Descriptor& socket() const noexcept { return socket_; }
  [[nodiscard]] bool is_open() const noexcept { return socket_.is_open(); }
  void close() noexcept { socket_.close(); }

  /// Begins a new frame, whose body is to have so many bytes.
  void expect(std::uint64_t length);
  /// Receives what has arrived, without waiting, and keeps notes for `take_note`. Also complete if another
  /// number of bytes is announced than expected; these bytes are not read.
  [[nodiscard]] Progress receive();
  [[nodiscard]] const Header& header() const noexcept { return reader_->header(); }
  [[nodiscard]] std::span<const std::byte> body() const noexcept { return body_; }
  [[nodiscard]] bool is_as_expected() const noexcept {
    return header().kind == Header::Kind::bytes && header().length == expected_;
  }
  /// Throws the failure that the frame reports, if it is one.
  void rethrow() const;
  /// Returns the last note that has arrived since the last call.
  [[nodiscard]] std::optional<std::string> take_note();

  /// Queues bytes, which must stay where they are until `flush` has sent them.
  void add(std::span<const std::byte> bytes);
  /// Sends what is queued as far as that takes no waiting.
  [[nodiscard]] Progress flush();
  /// Sends all that is queued; returns half-way only if the wait is over.
  [[nodiscard]] Progress flush(const Wait& wait);
  /// Sends a failure as far as that takes no waiting; so does `send_note`.
  void send_failure(ErrorCode code, std::string_view message);
  [[nodiscard]] Progress send_note(std::string_view text);

  bool has_asked = false;  ///< what it is waiting for

 private:
  [[nodiscard]] Progress send_text(Header header, std::string_view text);
  [[nodiscard]] std::string text() const;

  Descriptor socket_;
  std::optional<FrameReader> reader_;
  std::optional<FrameWriter> writer_;
  std::uint64_t expected_ = 0;
  std::vector<std::byte> body_;
  bool is_complete_ = false;
  std::optional<std::string> note_;
};

}  // namespace tutti::tcp
