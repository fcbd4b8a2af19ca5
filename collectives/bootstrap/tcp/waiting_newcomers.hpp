// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/place.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "collectives/bootstrap/tcp/visitors.hpp"
#include "os/descriptor.hpp"
#include "transport/team/shrinking/entrance.hpp"

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace tutti::tcp {

class OpenPlace;

/// The processes that have come to a place and want to become ranks. They wait there until a rank lets them
/// in. Used by one thread at a time, but for its owner, which any thread may set and find. In forked children
/// all its connections are closed, so that they end with this process.
class WaitingNewcomers {
 public:
  using Host = transport::team::Entrance::Host;

  /// Listens at the place, where `most` processes may wait. Throws Error(transport_failure) with errno if
  /// that is impossible.
  WaitingNewcomers(const Place& place, std::size_t most);
  WaitingNewcomers(const WaitingNewcomers&) = delete;
  WaitingNewcomers& operator=(const WaitingNewcomers&) = delete;
  ~WaitingNewcomers();

  /// Notices who comes and who leaves, without waiting.
  void look();
  /// Does the same, tells `host` which of those that it has let in have left, and lets in those who wait, in
  /// the order in which they came, as far as it has tickets.
  void look(const Host& host);
  /// Forgets those that have been let in: they need this connection no longer.
  void forget_admitted();

  /// Returns how many have asked to be let in and have not been.
  [[nodiscard]] std::size_t count() const;
  /// Adds the sockets on which to wait for the next event. Returns false if `look` must be called soon even
  /// without one, because there is no room for another connection.
  [[nodiscard]] bool add_sockets(std::vector<pollfd>& sockets) const;
  /// Says in words who else has come, as `Visitors::account` does.
  [[nodiscard]] std::string account() const { return visitors_.account(); }
  /// Sets the open place that owns this.
  void set_owner(const std::shared_ptr<OpenPlace>& owner);
  /// Returns the open place of this process there, or nullptr.
  [[nodiscard]] static std::shared_ptr<OpenPlace> owner_at(const Place& place);
  /// Returns whether those who come to the place have the secret and the job of those who wait here.
  [[nodiscard]] bool has_key_of(const Place& place) const { return key_ == key_of(place.rendezvous); }

 private:
  struct OfProcess;

  /// A process that has proven that it belongs to the job.
  struct Guest {
    Line line;
    std::optional<transport::team::Applicant> applicant{};
    std::optional<transport::team::Ticket> ticket{};

    [[nodiscard]] bool waits() const noexcept { return applicant && !ticket; }
  };
  using Guests = std::list<Guest>;

  void greet(Claim claim, Line line);
  /// Reads what a guest has sent. Returns false if it has left, or cannot become a rank.
  [[nodiscard]] static bool hear(Guest& guest);
  /// Removes the guests that have left, and returns them.
  [[nodiscard]] Guests without_those_gone();
  [[nodiscard]] bool send_ticket(Guest& guest, const transport::team::Ticket& ticket);
  /// Returns whether it listens at the place.
  [[nodiscard]] bool is_at(const Place& place) const;
  void close() noexcept;
  void leave_to_parent() noexcept;

  const Key key_;
  const std::size_t most_;
  /// Held while the connections change, and during a fork. Nothing else is called meanwhile.
  std::mutex mutex_;
  Descriptor listener_;
  std::string address_;
  Visitors visitors_;
  Guests guests_;  ///< in the order in which they came
  std::weak_ptr<OpenPlace> owner_;
};

}  // namespace tutti::tcp
