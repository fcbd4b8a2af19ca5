// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/handshake.hpp"
#include "collectives/bootstrap/tcp/sha256.hpp"
#include "os/descriptor.hpp"

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <vector>

#include <poll.h>

namespace tutti::tcp {

/// The connections to rank 0 whose other ends have not proven yet that they are of the job.
///
/// They are bounded in number: where one more comes, or no descriptor is left for it, the one that has been
/// silent for longest goes, of those that have said nothing first. A rank to which that happens connects
/// again.
class Visitors {
 public:
  /// `ranks` is how many may come at the same time and are no strangers.
  Visitors(const Digest& key, int ranks);

  /// Accepts those who have connected, as far as it can without waiting.
  void accept_from(const Descriptor& listener);
  /// Hears what they have said. Those who have proven that they are of the job are handed over.
  void hear(const std::function<void(Claim, Descriptor)>& admit);
  /// Adds what is to be waited for: all connections, and the listener if there is room for one more.
  void add_sockets(const Descriptor& listener, std::vector<pollfd>& sockets) const;
  /// Says who has come and was no rank: "; 1 connection had another secret (TUTTI_SECRET) or job". Empty if
  /// nobody has.
  [[nodiscard]] std::string account() const;

 private:
  using List = std::list<Visitor>;

  /// Dismisses the visitor that has been quiet longest; returns false if none may be dismissed.
  bool dismiss_the_quietest();
  void count(const Visitor& visitor, Visitor::State state);

  Digest key_;
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
