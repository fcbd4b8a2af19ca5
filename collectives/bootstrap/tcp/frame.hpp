// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/cipher.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <sys/uio.h>

/// The messages of processes that have accepted one another.
///
/// A frame is a header and a body. On the wire, the header and each piece of the body, all but the last of
/// `piece_bytes`, are a record, which its tag follows (see `Seal`).
namespace tutti::tcp {

inline constexpr std::size_t piece_bytes = std::size_t{64} << 10U;

struct Header {
  enum class Kind : std::uint32_t {
    bytes,    ///< of an all_gather, or a message of a network
    failure,  ///< a text
    /// A text that may come before any other frame. To rank 0 an empty one asks what a rank is waiting for,
    /// and any other one says that it waits no longer; rank 0 answers who is missing.
    note,
    count,  ///< `number` messages of the network have been received
    leave,  ///< the sender has left the network
  };
  Kind kind = Kind::bytes;
  std::uint32_t code = 0;     ///< of a failure
  std::uint64_t length = 0;   ///< of the body
  std::uint64_t network = 0;  ///< which network the frame belongs to
  std::uint64_t number = 0;
};

/// Sends frames in order, as fast as the socket takes them. What is not encrypted is not copied.
class FrameWriter {
 public:
  explicit FrameWriter(Seal seal) : seal_(std::move(seal)) {}

  /// Queues a frame, whose header's length is set. `body` must stay where it is until it has been sent, or as
  /// long as the writer lives; `owner`, if there is one, is kept until then.
  void add(Header header, std::span<const std::byte> body = {}, std::shared_ptr<const void> owner = nullptr);
  /// Sends as much as is possible without waiting. Complete if nothing is left.
  [[nodiscard]] Progress flush(const Descriptor& socket);
  [[nodiscard]] bool is_empty() const noexcept { return frames_.empty(); }

 private:
  struct Frame {
    Header header;
    std::span<const std::byte> body;
    std::shared_ptr<const void> owner;
    std::size_t pieces_left = 0;  ///< that have not been sent completely
  };
  /// A record with its tag, ready to be sent: copied, or only the tag.
  struct Record {
    std::vector<std::byte> copied;
    Tag tag{};
    std::span<const std::byte> bytes;  ///< of the body, or of `copied`
    std::size_t sent = 0;              ///< of the bytes and the tag
    [[nodiscard]] std::size_t size() const noexcept { return bytes.size() + tag.size(); }
  };

  void seal_more();
  void add_record(std::span<const std::byte> bytes, bool is_copied);
  void drop(std::size_t count);
  [[nodiscard]] std::size_t fill(std::span<iovec> pieces);

  Seal seal_;
  std::deque<Frame> frames_;
  std::deque<Record> records_;
  std::vector<std::vector<std::byte>> spare_;  ///< buffers of records that have been sent
  std::size_t sealed_frames_ = 0;              ///< whose last record is in `records_`
  std::size_t sealed_bytes_ = 0;               ///< of the body of the frame after these
  bool is_header_sealed_ = false;
  std::size_t ready_bytes_ = 0;  ///< in `records_`
};

/// Receives frames piece by piece; a large body goes to where it stays.
class FrameReader {
 public:
  explicit FrameReader(Seal seal) : seal_(std::move(seal)) {}

  /// Begins the next frame and receives its header, without waiting. Closed also if the bytes are not what
  /// the other end has sent. Complete again, at once, until the body has been taken or left.
  [[nodiscard]] Progress receive_header(const Descriptor& socket);
  /// Receives the body that the header announces.
  [[nodiscard]] Progress receive_body(const Descriptor& socket);
  [[nodiscard]] const Header& header() const noexcept { return header_; }
  /// Returns the body, and begins the next frame.
  [[nodiscard]] std::vector<std::byte> take_body();
  /// Returns whether a frame is half here.
  [[nodiscard]] bool is_halfway() const noexcept { return taken_ > 0 || has_header_ || begin_ < end_; }
  /// Returns whether bytes have been changed, or were of somebody without the key.
  [[nodiscard]] bool is_forged() const noexcept { return is_forged_; }

 private:
  [[nodiscard]] Progress receive_record(const Descriptor& socket, std::span<std::byte> record);
  [[nodiscard]] Progress fetch(const Descriptor& socket, std::span<std::byte> rest);

  static constexpr std::size_t inbox_bytes = 16'384;

  Seal seal_;
  Header header_;
  bool has_header_ = false;
  bool is_forged_ = false;
  std::vector<std::byte> body_;
  std::size_t filled_ = 0;  ///< of the body, in records that have been opened
  Tag tag_{};
  std::size_t taken_ = 0;  ///< of the record and its tag
  std::vector<std::byte> inbox_ = std::vector<std::byte>(inbox_bytes);
  std::size_t begin_ = 0;  ///< of what is in the inbox
  std::size_t end_ = 0;
};

}  // namespace tutti::tcp
