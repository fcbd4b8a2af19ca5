// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/frame.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/socket.h>

namespace tutti::tcp {
namespace {

/// Records are sealed so far ahead of what the socket has taken.
constexpr std::size_t most_ready_bytes = 4 * piece_bytes;
constexpr std::size_t most_spare_buffers = 5;
constexpr std::size_t most_pieces = 64;  ///< of one system call

iovec piece_of(std::span<const std::byte> bytes) {
  return {.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
}

}  // namespace

void FrameWriter::add(Header header, std::span<const std::byte> body, std::shared_ptr<const void> owner) {
  header.length = body.size();
  const std::size_t pieces = 1 + (body.size() + piece_bytes - 1) / piece_bytes;
  frames_.push_back({.header = header, .body = body, .owner = std::move(owner), .pieces_left = pieces});
}

void FrameWriter::add_record(std::span<const std::byte> bytes, bool is_copied) {
  Record& record = records_.emplace_back();
  if (is_copied || seal_.encrypts()) {
    if (!spare_.empty()) {
      record.copied = std::move(spare_.back());
      spare_.pop_back();
    }
    record.copied.assign(bytes.begin(), bytes.end());
    record.bytes = record.copied;
    record.tag = seal_.encrypts() ? seal_.encrypt(record.copied) : seal_.sign(bytes);
  } else {
    record.bytes = bytes;
    record.tag = seal_.sign(bytes);
  }
  ready_bytes_ += record.size();
}

void FrameWriter::seal_more() {
  while (ready_bytes_ < most_ready_bytes && sealed_frames_ < frames_.size()) {
    const Frame& frame = frames_[sealed_frames_];
    if (!is_header_sealed_) {
      add_record(std::as_bytes(std::span(&frame.header, 1)), true);
      is_header_sealed_ = true;
    } else {
      const std::size_t length = std::min(piece_bytes, frame.body.size() - sealed_bytes_);
      add_record(frame.body.subspan(sealed_bytes_, length), false);
      sealed_bytes_ += length;
    }
    if (sealed_bytes_ < frame.body.size()) continue;
    ++sealed_frames_;
    sealed_bytes_ = 0;
    is_header_sealed_ = false;
  }
}

std::size_t FrameWriter::fill(std::span<iovec> pieces) {
  std::size_t count = 0;
  for (const Record& record : records_) {
    if (count + 2 > pieces.size()) break;
    if (record.sent < record.bytes.size()) pieces[count++] = piece_of(record.bytes.subspan(record.sent));
    const std::size_t of_tag = record.sent - std::min(record.sent, record.bytes.size());
    pieces[count++] = piece_of(std::span(record.tag).subspan(of_tag));
  }
  return count;
}

void FrameWriter::drop(std::size_t count) {
  ready_bytes_ -= count;
  while (count > 0) {
    Record& first = records_.front();
    const std::size_t part = std::min(count, first.size() - first.sent);
    first.sent += part;
    count -= part;
    if (first.sent < first.size()) return;
    if (!first.copied.empty() && spare_.size() < most_spare_buffers)
      spare_.push_back(std::move(first.copied));
    records_.pop_front();
    if (--frames_.front().pieces_left > 0) continue;
    frames_.pop_front();
    --sealed_frames_;
  }
}

Progress FrameWriter::flush(const Descriptor& socket) {
  for (;;) {
    seal_more();
    if (records_.empty()) return Progress::complete;
    std::array<iovec, most_pieces> pieces;
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = fill(pieces);
    const ssize_t count = sendmsg(socket.number(), &message, MSG_NOSIGNAL);
    if (count < 0) return is_passing(errno) ? Progress::halfway : Progress::closed;
    drop(static_cast<std::size_t>(count));
  }
}

/// Receives what is missing of a record, and of its tag; what comes beyond them stays in the inbox.
Progress FrameReader::fetch(const Descriptor& socket, std::span<std::byte> rest) {
  begin_ = end_ = 0;
  std::array<iovec, 2> pieces{piece_of(rest), piece_of(inbox_)};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const ssize_t count = recvmsg(socket.number(), &message, 0);
  if (count < 0 && is_passing(errno)) return Progress::halfway;
  if (count <= 0) {
    if (count == 0) errno = 0;
    return Progress::closed;
  }
  const std::size_t direct = std::min(static_cast<std::size_t>(count), rest.size());
  taken_ += direct;
  end_ = static_cast<std::size_t>(count) - direct;
  return Progress::complete;
}

Progress FrameReader::receive_record(const Descriptor& socket, std::span<std::byte> record) {
  const auto take_from_inbox = [this](std::span<std::byte> to) {
    const std::size_t count = std::min(to.size(), end_ - begin_);
    if (count > 0) std::memcpy(to.data(), inbox_.data() + begin_, count);
    begin_ += count;
    taken_ += count;
  };
  for (;;) {
    if (taken_ < record.size()) take_from_inbox(record.subspan(taken_));
    if (taken_ >= record.size())
      take_from_inbox(std::as_writable_bytes(std::span(tag_)).subspan(taken_ - record.size()));
    if (taken_ == record.size() + tag_.size()) break;
    const std::span<std::byte> rest = record.subspan(std::min(taken_, record.size()));
    const Progress progress = fetch(socket, rest);
    if (progress != Progress::complete) return progress;
  }
  taken_ = 0;
  is_forged_ = !seal_.open(record, tag_);
  return is_forged_ ? Progress::closed : Progress::complete;
}

Progress FrameReader::receive_header(const Descriptor& socket) {
  if (has_header_) return Progress::complete;
  const Progress progress = receive_record(socket, std::as_writable_bytes(std::span(&header_, 1)));
  has_header_ = progress == Progress::complete;
  return progress;
}

Progress FrameReader::receive_body(const Descriptor& socket) {
  while (filled_ < header_.length) {
    if (body_.size() == filled_) {
      if (filled_ == 0) body_.reserve(header_.length);
      body_.resize(filled_ + std::min<std::size_t>(piece_bytes, header_.length - filled_));
    }
    const Progress progress = receive_record(socket, std::span(body_).subspan(filled_));
    if (progress != Progress::complete) return progress;
    filled_ = body_.size();
  }
  return Progress::complete;
}

std::vector<std::byte> FrameReader::take_body() {
  has_header_ = false;
  filled_ = 0;
  return std::exchange(body_, {});
}

}  // namespace tutti::tcp
