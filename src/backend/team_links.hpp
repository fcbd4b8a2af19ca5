// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

/// Defines messages from one member of a team to another, which no third member knows of.
///
/// From every member to every other there is a *link*. Its messages are taken in the order in which they are
/// sent. They go in pieces by several *lanes*, each of which has a ring of slots and two flags of its own.
/// The sender puts a piece into the next slot in the receiver's window, as soon as there is room, with a
/// label that identifies the message, and publishes how many it has put. The receiver copies it out and
/// publishes how many it has taken. Each member counts both itself, in its counters, so that graphs can be
/// replayed.
///
/// The receiver takes no piece of a message that differs in bytes or element type from the one it was asked
/// for: it waits there, until the host that compares both sides ends the team.
///
/// A message of more than `TeamLinks::direct_from` bytes waits for its receiver. When a lane of the receiver
/// comes to it, it writes an *invitation* into a line in the sender's window, which identifies the message,
/// and the place in the receiver's memory where the sender may write; or nowhere, which means slots. The
/// sender removes the invitation from the line, writes the lane's share of the message as one piece, and
/// continues as after any other piece: label, flag, and the receiver's flag that it has been taken. A
/// receiver that gives up withdraws its invitations, and waits, but not for ever, for those that have been
/// taken up: a sender finishes writing soon.
///
/// Small messages go in lines where the layout has lanes for them, each piece with neither flag nor label: a
/// line has 8 bytes of the message, identifies the message, and says how many pieces the lane has had,
/// including this one. So a receiver that finds all its lines has the piece. The first of these lanes has a
/// line for each of the other messages, too. Backends without such lanes may ignore them.
///
/// A member processes many messages at once, of many links: any piece that can move does, and none waits for
/// a piece of another link or of another lane. If lanes were processed one after another, two members could
/// wait for each other for ever: each would send in a later lane only after it had received in an earlier
/// one.
namespace tutti::backend {

struct LinkMessage {
  std::byte* address = nullptr;  ///< own memory; read only if the message is sent
  std::uint64_t bytes = 0;
  std::uint32_t dtype = 0;  ///< a DType, the same on both sides
  /// The address by which the sender's device finds `address` of a received message, aligned to 16 bytes on
  /// GPUs; nullptr: none.
  std::byte* invited_to = nullptr;
};

/// The messages of one task on one link, in order: entries of `TeamLinks::messages`.
struct LinkPart {
  std::uint32_t peer = 0;     ///< the other member
  std::uint32_t is_sent = 0;  ///< 1: sent to the peer; 0: received from it
  std::uint32_t first_message = 0;
  std::uint32_t message_count = 0;
};

/// The fewest warps of a block that sends or receives messages in lines, one lane with each, if there are as
/// many lanes.
inline constexpr std::uint32_t fewest_line_warps = 4;

/// The messages that one member sends and receives in one task: at most one part for each link. The tasks of
/// one member come in order, as its rounds do.
struct TeamLinks {
  TeamWindowLayout layout;
  std::span<std::byte* const> windows;  ///< by member, as this device reaches them
  std::uint32_t member = 0;
  TeamCounters* counters = nullptr;  ///< memory of the member's device, of `TeamCounters::bytes_with_links`
  AbortWord* abort = nullptr;        ///< in registered memory; ends all waits once it is set
  std::uint32_t process = 0;         ///< the calling process's number, for `abort`
  std::uint32_t most_multiprocessors = all_multiprocessors;  ///< see `TeamRound`
  /// Messages of more bytes wait for an invitation; the same for all members.
  std::uint64_t direct_from = std::numeric_limits<std::uint64_t>::max();
  std::span<const LinkPart> parts;
  std::span<const LinkMessage> messages;

  /// Returns the number of lanes in use, except lanes of lines.
  [[nodiscard]] std::uint32_t lanes_used() const noexcept {
    std::uint64_t most = 0;
    for (const LinkMessage& message : messages) {
      if (!layout.goes_in_lines(message.bytes)) most = std::max(most, layout.link_pieces(message.bytes));
    }
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, layout.link_lanes));
  }
  /// Returns the number of lanes of lines in use.
  [[nodiscard]] std::uint32_t line_lanes_used() const noexcept {
    if (layout.line_lanes == 0) return 0;
    std::uint64_t most = 0;
    for (const LinkMessage& message : messages)
      most = std::max(most, layout.line_pieces(layout.line_bytes(message.bytes)));
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(most, layout.line_lanes));
  }
};

/// Returns the second word of an invitation's line, which identifies the message; never 0, which empty lines
/// have. Also used on GPUs.
[[nodiscard]] constexpr std::uint64_t invitation_for(const LinkMessage& message) noexcept {
  return message.bytes << 16U | message.dtype;
}

/// Returns the second word of each line of a piece; `count` is the number of the lane's pieces, including
/// this one. Never 0, which unwritten lines have. Also used on GPUs.
[[nodiscard]] constexpr std::uint64_t line_mark(const LinkMessage& message, std::uint32_t count) noexcept {
  constexpr std::uint64_t is_written = std::uint64_t{1} << 63U;
  return is_written | (message.bytes << 8U | message.dtype) << 32U | count;
}

/// A lane's position in a part of a task. Also used on GPUs.
struct LinkCursor {
  std::uint64_t piece = 0;       ///< the message's piece that the lane moves next
  std::uint32_t message = 0;     ///< index in the part; the number of messages at the end
  std::uint32_t count = 0;       ///< pieces that the lane has moved before, in all tasks
  std::byte* target = nullptr;   ///< for the sender: where the message is written directly; nullptr: in slots
  std::uint32_t is_located = 0;  ///< not 0 if `target` is known

  [[nodiscard]] constexpr bool is_direct() const noexcept { return target != nullptr; }
  /// Returns the bytes of a full piece.
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
  /// Moves on to the lane's next piece, or message: a direct message is one piece in each lane.
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
