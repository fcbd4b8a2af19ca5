// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "collectives/bootstrap/tcp/line.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

namespace tutti::tcp {

/// The connections to rank 0 whose other ends have not proven yet that they belong to the job.
///
/// Their number is limited. If one more arrives, or no descriptor is left for it, the connection that has
/// been silent for longest is closed, first among those that have sent nothing. A rank whose connection is
/// closed connects again.
class Visitors {
 public:
  /// Makes room for `ranks`, the number of ranks that may connect at the same time, besides strangers.
  Visitors(const Key& key, bool encrypts, int ranks);

  /// Accepts new connections, as far as possible without waiting.
  void accept_from(const Descriptor& listener);
  /// Receives what they have sent, and calls `admit` for those that have proven that they belong to the job.
  void hear(const std::function<void(Claim, Line)>& admit);
  /// Adds what is to be waited for: all connections, and the listener if there is room for one more.
  void add_sockets(const Descriptor& listener, std::vector<pollfd>& sockets) const;
  /// Describes the connections that came from no rank: "; 1 connection had another secret (TUTTI_SECRET) or
  /// job". Empty if there were none.
  [[nodiscard]] std::string account() const;
  /// Returns false if there was no room for a connection when it was last looked for.
  [[nodiscard]] bool has_room() const noexcept { return has_room_; }
  /// Closes all connections, and frees no memory.
  void close() noexcept;

 private:
  using List = std::list<Visitor>;

  /// Dismisses the visitor that has been quiet longest; returns false if none may be dismissed.
  bool dismiss_the_quietest();
  void count(const Visitor& visitor, Visitor::State state);

  Key key_;
  bool encrypts_;
  std::size_t most_;
  List visitors_;
  bool has_room_ = true;
  bool lacks_descriptors_ = false;
  std::size_t refused_ = 0;
  std::size_t strangers_ = 0;
  std::size_t silent_ = 0;
  std::size_t unfinished_ = 0;  ///< began as ranks do
};

}  // namespace tutti::tcp
