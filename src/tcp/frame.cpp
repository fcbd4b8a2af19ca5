// SPDX-License-Identifier: Apache-2.0
#include "tcp/frame.hpp"

#include <algorithm>
#include <string>

namespace tutti::tcp {
namespace {

constexpr std::size_t longest_message = 16'384;

}  // namespace

Progress Frame::receive(const Descriptor& socket) {
  if (!has_header_) {
    if (const Progress progress = tcp::receive(socket, rest_); progress != Progress::complete)
      return progress;
    has_header_ = true;
    const bool is_failure = header_.kind == Header::Kind::failure && header_.length <= longest_message;
    if (!is_failure && !is_as_expected()) return Progress::complete;
    body_.resize(header_.length);
    rest_ = body_;
  }
  return tcp::receive(socket, rest_);
}

void Frame::rethrow() const {
  if (header_.kind != Header::Kind::failure) return;
  const auto* const text = reinterpret_cast<const char*>(body_.data());
  const auto code = std::min(header_.code, static_cast<std::uint32_t>(ErrorCode::internal));
  throw Error(static_cast<ErrorCode>(code), std::string(text, body_.size()));
}

Progress send_frame(const Descriptor& socket, std::span<const std::byte> bytes, const Wait& wait) {
  const Header header{.kind = Header::Kind::bytes, .code = 0, .length = bytes.size()};
  const Progress progress = send_all(socket, std::as_bytes(std::span(&header, 1)), wait);
  return progress == Progress::complete ? send_all(socket, bytes, wait) : progress;
}

void send_failure(const Descriptor& socket, ErrorCode code, std::string_view message) {
  message = message.substr(0, longest_message);
  const Header header{
      .kind = Header::Kind::failure, .code = static_cast<std::uint32_t>(code), .length = message.size()};
  std::span<const std::byte> rest = std::as_bytes(std::span(&header, 1));
  if (send(socket, rest) != Progress::complete) return;
  rest = std::as_bytes(std::span(message));
  static_cast<void>(send(socket, rest));
}

}  // namespace tutti::tcp
