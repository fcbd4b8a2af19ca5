// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/meeting.hpp"

#include "collectives/bootstrap/tcp/roster.hpp"
#include "collectives/bootstrap/tcp/visitors.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

/// The meeting as rank 0 holds it: it listens, lets ranks in, and watches those who have come.
class Meeting {
 public:
  Meeting(const Rendezvous& rendezvous, const std::vector<Address>& addresses, const Wait& wait)
      : rendezvous_(rendezvous),
        wait_(wait),
        listener_(listen_at(addresses, rendezvous)),
        visitors_(key_of(rendezvous), rendezvous.encrypts, rendezvous.size),
        roster_(rendezvous.size),
        lines_(static_cast<std::size_t>(rendezvous.size)) {}

  /// False if the wait is over before all have come.
  bool wait_for_all() {
    for (;;) {
      look();
      if (roster_.is_complete()) return true;
      if (wait_.is_over()) return false;
      std::vector<pollfd> sockets = sockets_of_those_here();
      visitors_.add_sockets(listener_, sockets);
      wait_.until_ready(sockets);
    }
  }
  std::string absences() const { return roster_.absences(place_of(rendezvous_)) + visitors_.account(); }
  void tell_all(ErrorCode code, const std::string& message) {
    for (Line& line : lines_) {
      if (line.is_open()) line.send_failure(code, message);
    }
  }
  std::vector<Line> welcome_all() {
    for (Line& line : lines_) {
      if (!line.is_open()) continue;
      line.add({});
      // They have been silent for long, and so little fits.
      static_cast<void>(line.flush(wait_));
    }
    return std::move(lines_);
  }

 private:
  void look() {
    visitors_.accept_from(listener_);
    visitors_.hear([this](Claim claim, Line line) { admit(claim, std::move(line)); });
    for (int rank = 1; rank < rendezvous_.size; ++rank) watch(rank);
    if (roster_.version() != told_version_) tell_those_who_asked();
  }
  void admit(Claim claim, Line its) {
    if (claim.rank == Claim::newcomer) return;  // it comes again, when ranks let newcomers in
    const std::string reason = reason_against(claim);
    if (reason.empty()) {
      line(claim.rank) = std::move(its);
      roster_.note_arrival(claim.rank);
    } else {
      its.send_failure(ErrorCode::invalid_argument, reason);
      roster_.note_refusal(claim.rank, reason);
    }
  }
  std::string reason_against(Claim claim) {
    if (claim.size != rendezvous_.size) {
      return fmt::format("rank {} was started as one of {} processes, rank 0 as one of {}", claim.rank,
                         claim.size, rendezvous_.size);
    }
    if (claim.rank < 1 || claim.rank >= rendezvous_.size)
      return fmt::format("rank is {}, expected 1 to {}", claim.rank, rendezvous_.size - 1);
    watch(claim.rank);  // it may be the next life of one that has just ended
    if (!roster_.has(claim.rank)) return {};
    return fmt::format("rank {} has come already: has another job the same address, port and secret?",
                       claim.rank);
  }
  /// Sees whether a rank that has come is still there, and what it asks.
  void watch(int rank) {
    if (!roster_.has(rank)) return;
    Line& its = line(rank);
    const Progress progress = its.receive();
    const std::optional<std::string> note = its.take_note();
    if (note) its.has_asked = true;
    const bool has_given_up = note && !note->empty();
    // It has nothing to say but notes before all have come.
    if (progress != Progress::halfway || has_given_up) {
      miss(rank, has_given_up ? Roster::Departure::gave_up : Roster::Departure::left);
    } else if (note) {
      tell(rank);
    }
  }
  void miss(int rank, Roster::Departure departure) {
    line(rank) = Line{};
    roster_.note_departure(rank, departure);
    if (departure == Roster::Departure::left) {
      log_warning(fmt::format("rank {} has left {} before all had come: waiting for it to come again", rank,
                              place_of(rendezvous_)));
    }
  }
  void tell(int rank) {
    // There is room for a note unless the rank has long read none: then it is no longer there.
    if (line(rank).send_note(absences()) != Progress::complete) miss(rank, Roster::Departure::left);
  }
  void tell_those_who_asked() {
    told_version_ = roster_.version();
    for (int rank = 1; rank < rendezvous_.size; ++rank) {
      if (roster_.has(rank) && line(rank).has_asked) tell(rank);
    }
  }
  Line& line(int rank) { return lines_[static_cast<std::size_t>(rank)]; }
  std::vector<pollfd> sockets_of_those_here() const {
    std::vector<pollfd> sockets;
    for (const Line& line : lines_) {
      if (line.is_open()) sockets.push_back({.fd = line.socket().number(), .events = POLLIN, .revents = 0});
    }
    return sockets;
  }

  const Rendezvous& rendezvous_;
  const Wait& wait_;
  Descriptor listener_;
  Visitors visitors_;
  Roster roster_;
  std::vector<Line> lines_;
  unsigned told_version_ = 0;
};

}  // namespace

std::vector<Line> meet_all(const Rendezvous& rendezvous, const std::vector<Address>& addresses,
                           std::chrono::milliseconds timeout, const Exchange::Watch& watch) {
  const Wait wait(timeout, watch);
  Meeting meeting(rendezvous, addresses, wait);
  try {
    if (meeting.wait_for_all()) return meeting.welcome_all();
  } catch (...) {
    meeting.tell_all(ErrorCode::peer_unavailable, "rank 0 has given up before all ranks had come");
    throw;
  }
  const std::string message = fmt::format("after {} s, {}", in_seconds(timeout), meeting.absences());
  meeting.tell_all(ErrorCode::timeout, message);
  throw Error(ErrorCode::timeout, message);
}

}  // namespace tutti::tcp
