// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/hosts/host_proxy_messages.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/windows/windows.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::transport::team {

/// Mirrors the messages between two members: what a local side of a link has announced, the pieces it has
/// put, and how many it has taken go to the host of the other member only. Costs a load for each link between
/// hosts, and one for each lane of a link that has been used. For one thread.
class LinkMirror {
 public:
  LinkMirror(const Membership& membership, const SharedState& state, const Windows& windows, Abort& abort);
  LinkMirror(const LinkMirror&) = delete;
  LinkMirror& operator=(const LinkMirror&) = delete;
  ~LinkMirror() = default;

  /// Adds what is new for `host`. Calls `may_send` wherever the message so far may be sent.
  void add_news(MessageWriter& news, std::size_t host, const std::function<void()>& may_send);

  // Each reads its record from the message and writes it into the mirrors. They throw Error(internal) if the
  // record is malformed.
  void deliver_log(MessageReader& message);
  void deliver_piece(MessageReader& message);
  void deliver_taken(MessageReader& message);

 private:
  using LinkEnd = SharedState::LinkEnd;
  /// A link with one end on this host and one on another, and what has been sent of the local end.
  struct Side {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    LinkEnd end{};
    std::size_t host = 0;  ///< host of the other end
    std::uint64_t posted = 0;
    std::uint64_t made = 0;
    std::uint64_t received = 0;
    std::vector<std::uint32_t> pieces{};  ///< by lane: number of pieces put, or taken
  };
  struct Lane {
    std::uint32_t from;
    std::uint32_t to;
    std::uint32_t lane;
  };

  void add_log(MessageWriter& news, Side& side) const;
  void add_pieces(MessageWriter& news, Side& side, const std::function<void()>& may_send) const;
  void add_taken(MessageWriter& news, Side& side) const;
  [[nodiscard]] Lane take_lane(MessageReader& message) const;

  const Membership& membership_;
  const SharedState state_;
  const Windows& windows_;
  Abort& abort_;
  std::vector<Side> sides_;
};

}  // namespace tutti::transport::team
