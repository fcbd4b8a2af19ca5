// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/frame.hpp"

#include <algorithm>
#include <utility>

namespace tutti::tcp {
namespace {

constexpr std::size_t longest_text = 16'384;

bool is_text(const Header& header) {
  return header.kind != Header::Kind::bytes && header.length <= longest_text;
}

/// Receives what is missing of `bytes`, which are those from `start` on of a frame of which `taken` have
/// come.
Progress fill(const Descriptor& socket, std::span<std::byte> bytes, std::size_t start, std::size_t& taken) {
  std::span<std::byte> rest = bytes.subspan(taken - start);
  const Progress progress = receive(socket, rest);
  taken = start + bytes.size() - rest.size();
  return progress;
}

/// Sends header and text at once: half a text would be taken for the beginning of what follows.
Progress send_text(const Descriptor& socket, Header header, std::string_view text) {
  text = text.substr(0, longest_text);
  header.length = text.size();
  const std::span<const std::byte> head = std::as_bytes(std::span(&header, 1));
  std::vector<std::byte> all(head.begin(), head.end());
  const std::span<const std::byte> body = std::as_bytes(std::span(text));
  all.insert(all.end(), body.begin(), body.end());
  std::span<const std::byte> rest = all;
  return send(socket, rest);
}

}  // namespace

void Frame::expect(std::uint64_t length) {
  expected_ = length;
  if (is_complete_) taken_ = 0;  // else a note may be half here
  is_complete_ = false;
}

Progress Frame::receive(const Descriptor& socket) {
  for (;;) {
    const Progress progress = receive_one(socket);
    if (progress != Progress::complete) return progress;
    is_complete_ = header_.kind != Header::Kind::note;
    if (is_complete_) return progress;
    note_ = text();
    taken_ = 0;
  }
}

Progress Frame::receive_one(const Descriptor& socket) {
  if (taken_ < sizeof(Header)) {
    const Progress progress = fill(socket, std::as_writable_bytes(std::span(&header_, 1)), 0, taken_);
    if (progress != Progress::complete) return progress;
    if (!is_text(header_) && !is_as_expected()) {
      // Too long a note is none.
      return header_.kind == Header::Kind::note ? Progress::closed : Progress::complete;
    }
    body_.resize(header_.length);
  }
  return fill(socket, body_, sizeof(Header), taken_);
}

std::string Frame::text() const {
  return {reinterpret_cast<const char*>(body_.data()), body_.size()};
}

void Frame::rethrow() const {
  if (header_.kind != Header::Kind::failure) return;
  const auto code = std::min(header_.code, static_cast<std::uint32_t>(ErrorCode::internal));
  throw Error(static_cast<ErrorCode>(code), text());
}

std::optional<std::string> Frame::take_note() {
  return std::exchange(note_, std::nullopt);
}

Header header_of(std::size_t length) {
  return {.kind = Header::Kind::bytes, .code = 0, .length = length};
}

Progress send_frame(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait) {
  const Header header = header_of(bytes.size());
  const Progress progress = send_all(socket, std::as_bytes(std::span(&header, 1)), wait);
  return progress == Progress::complete ? send_all(socket, bytes, wait) : progress;
}

void send_failure(const Descriptor& socket, ErrorCode code, std::string_view message) {
  static_cast<void>(send_text(
      socket, {.kind = Header::Kind::failure, .code = static_cast<std::uint32_t>(code), .length = 0},
      message));
}

Progress send_note(const Descriptor& socket, std::string_view text) {
  return send_text(socket, {.kind = Header::Kind::note, .code = 0, .length = 0}, text);
}

}  // namespace tutti::tcp
