// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

/// Messages from one member of a team to another, of which no third one knows.
///
/// From every member to every other there is a *link*. Its messages are taken in the order in which they are
/// sent. They go in pieces by several *lanes*, each of which has a ring of slots and two flags of its own.
/// The sender puts a piece into the next slot in the receiver's window, as soon as there is room, with a
/// label that tells what message it is of, and says how many it has put. The receiver copies it out and says
/// how many it has taken. Each member counts both itself, in its counters, so that graphs can be replayed.
///
/// The receiver takes no piece of another message than the one it is asked for, in bytes or element type: it
/// waits there, until the host that compares both sides ends the team.
///
/// A message of more than `TeamLinks::direct_from` bytes waits for its receiver. When this comes to it in a
/// lane it makes an *invitation*, in a line in the sender's window, which says for what message it is, and
/// where in the receiver's memory the sender may write; or nowhere, which means slots. The sender takes the
/// invitation out of the line, writes the lane's share of the message as one piece, and goes on as behind any
/// other: label, flag, and the receiver's flag that it has been taken. A receiver that gives up takes back
/// its invitations, and waits for those that have been taken up, if not for ever: a sender that writes is
/// soon over.
///
/// Small messages go in lines where the layout has lanes for them, each piece with neither flag nor label: a
/// line has 8 bytes of the message, says for what message it is, and how many pieces the lane has had with
/// it. So whoever finds all its lines has the piece. The first of these lanes has a line for each of the
/// other messages, too. Backends without such lanes need not know of them.
///
/// A member does many messages at once, of many links: whatever piece can move does, and none waits for one
/// of another link. Nor does a lane wait for another one: who does them one after another keeps what it sends
/// in a later lane waiting for what it receives in an earlier one, which the other side may send only then.
namespace tutti::backend {

struct LinkMessage {
  std::byte* address = nullptr;  ///< own memory: only read, if it is sent
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0;  ///< a DType: both sides have the same
  /// Of one that is received: where the sender's device finds `address`, aligned to 16 bytes on GPUs;
  /// nullptr: nowhere.
  std::byte* invited_to = nullptr;
};

/// The messages of one task on one link, in order: entries of `TeamLinks::messages`.
struct LinkPart {
  std::uint32_t peer = 0;     ///< the other member
  std::uint32_t is_sent = 0;  ///< to it, or else received from it
  std::uint32_t first_message = 0;
  std::uint32_t message_count = 0;
};

/// What one member sends and receives in one task: at most one part for each link. The tasks of one member
/// come in order, as its rounds do.
struct TeamLinks {
  TeamWindowLayout layout;
  std::span<std::byte* const> windows;  ///< by member, as this device reaches them
  std::uint32_t member = 0;
  TeamCounters* counters = nullptr;  ///< memory of the member's device, of `TeamCounters::bytes_with_links`
  AbortWord* abort = nullptr;        ///< in registered memory; once it is set, nothing waits any more
  std::uint32_t process = 0;         ///< the calling one's number, for `abort`
  std::uint32_t teams_on_device = 1;
  std::uint32_t most_multiprocessors = all_multiprocessors;  ///< as of a `FanOut`
  /// Above so many bytes messages wait for an invitation; the same for all members.
  std::uint64_t direct_from = std::numeric_limits<std::uint64_t>::max();
  std::span<const LinkPart> parts;
  std::span<const LinkMessage> messages;

  /// Lanes that have something to do, but for those of lines.
  [[nodiscard]] std::uint32_t lanes_used() const noexcept {
    std::uint64_t most = 0;
    for (const LinkMessage& message : messages) {
      if (!layout.goes_in_lines(message.bytes)) most = std::max(most, layout.link_pieces(message.bytes));
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, layout.link_lanes));
  }
  /// Likewise, of those of lines.
  [[nodiscard]] std::uint32_t line_lanes_used() const noexcept {
    if (layout.line_lanes == 0) return 0;
    std::uint64_t most = 0;
    for (const LinkMessage& message : messages)
      most = std::max(most, layout.line_pieces(layout.line_bytes(message.bytes)));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, layout.line_lanes));
  }
};

/// What the line of an invitation says besides the address, for which message it is; never 0, which lines
/// have that hold none. On GPUs, too.
[[nodiscard]] constexpr std::uint64_t invitation_for(const LinkMessage& message) noexcept {
  return message.bytes << 16U | message.dtype;
}

/// What each line of a message's piece says besides its bytes, where `count` is that of the lane's pieces
/// with this one; never 0, which lines have that nobody has written. On GPUs, too.
[[nodiscard]] constexpr std::uint64_t line_mark(const LinkMessage& message, std::uint32_t count) noexcept {
  constexpr std::uint64_t is_written = std::uint64_t{1} << 63U;
  return is_written | (message.bytes << 8U | message.dtype) << 32U | count;
}

/// Where a lane is in a part of a task. On GPUs, too.
struct LinkCursor {
  std::uint64_t piece = 0;       ///< of the message, which the lane moves next
  std::uint32_t message = 0;     ///< of the part; all of them: there is nothing left
  std::uint32_t count = 0;       ///< pieces of the lane before, of all tasks
  std::byte* target = nullptr;   ///< where the message is written at once, for the sender; nullptr: in slots
  std::uint32_t is_located = 0;  ///< whether that is known

  [[nodiscard]] constexpr bool is_direct() const noexcept { return target != nullptr; }
  /// Of a piece.
  [[nodiscard]] constexpr std::uint64_t most_bytes(const TeamWindowLayout& layout,
                                                   const LinkMessage& whole) const noexcept {
    return is_direct() ? layout.link_share_bytes(whole.bytes) : layout.link_piece_bytes(whole.bytes);
  }
  [[nodiscard]] constexpr std::uint64_t offset(const TeamWindowLayout& layout,
                                               const LinkMessage& whole) const noexcept {
    const std::uint64_t begin = piece * most_bytes(layout, whole);
    return begin < whole.bytes ? begin : whole.bytes;
  }
  [[nodiscard]] constexpr std::uint64_t bytes(const TeamWindowLayout& layout,
                                              const LinkMessage& whole) const noexcept {
    const std::uint64_t most = most_bytes(layout, whole);
    const std::uint64_t left = whole.bytes - offset(layout, whole);
    return left < most ? left : most;
  }
  /// To the lane's next piece, or message: a message that goes at once is one piece in each lane.
  constexpr void advance(const TeamWindowLayout& layout, std::uint32_t lane) noexcept {
    ++count;
    if (is_direct()) {
      next_message(lane);
    } else {
      piece += layout.link_lanes;
    }
  }
  constexpr void next_message(std::uint32_t lane) noexcept {
    ++message;
    piece = lane;
    target = nullptr;
    is_located = 0;
  }
};

}  // namespace tutti::backend
