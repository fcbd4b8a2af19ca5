// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/line.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace tutti::tcp {
namespace {

constexpr std::size_t longest_text = 16'384;

bool is_text(const Header& header) {
  return header.kind != Header::Kind::bytes && header.length <= longest_text;
}

}  // namespace

Line::Line(Descriptor socket, const Session& session)
    : socket_(std::move(socket)),
      reader_(Seal(session.from_other, session.protection)),
      writer_(Seal(session.to_other, session.protection)) {}

void Line::expect(std::uint64_t length) {
  expected_ = length;
  is_complete_ = false;
}

Progress Line::receive() {
  if (is_complete_) return Progress::complete;
  for (;;) {
    Progress progress = reader_->receive_header(socket_);
    if (progress != Progress::complete) return progress;
    if (!is_text(header()) && !is_as_expected()) {
      // Too long a note is none.
      is_complete_ = header().kind != Header::Kind::note;
      return is_complete_ ? Progress::complete : Progress::closed;
    }
    progress = reader_->receive_body(socket_);
    if (progress != Progress::complete) return progress;
    body_ = reader_->take_body();
    is_complete_ = header().kind != Header::Kind::note;
    if (is_complete_) return progress;
    note_ = text();
  }
}

std::string Line::text() const {
  return {reinterpret_cast<const char*>(body_.data()), body_.size()};
}

void Line::rethrow() const {
  if (header().kind != Header::Kind::failure) return;
  const auto code = std::min(header().code, static_cast<std::uint32_t>(ErrorCode::internal));
  throw Error(static_cast<ErrorCode>(code), text());
}

std::optional<std::string> Line::take_note() {
  return std::exchange(note_, std::nullopt);
}

void Line::add(std::span<const std::byte> bytes) {
  writer_->add(Header{}, bytes);
}

Progress Line::flush() {
  return writer_->flush(socket_);
}

Progress Line::flush(const Wait& wait) {
  for (;;) {
    const Progress progress = flush();
    if (progress != Progress::halfway || wait.is_over()) return progress;
    wait.until_ready(socket_, POLLOUT);
  }
}

Progress Line::send_text(Header header, std::string_view text) {
  const auto copy = std::make_shared<const std::string>(text.substr(0, longest_text));
  writer_->add(header, std::as_bytes(std::span(*copy)), copy);
  return flush();
}

void Line::send_failure(ErrorCode code, std::string_view message) {
  static_cast<void>(
      send_text({.kind = Header::Kind::failure, .code = static_cast<std::uint32_t>(code)}, message));
}

Progress Line::send_note(std::string_view text) {
  return send_text({.kind = Header::Kind::note}, text);
}

}  // namespace tutti::tcp
