// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/grow_options.hpp"

#include <memory>

namespace tutti {

namespace tcp {
class OpenPlace;
}

/// Keeps a meeting point open between calls of `Communicator::grow` and `replace`, so that new processes
/// (`Communicator::join`) may come at any time, wait, and be counted. One process of the ranks holds it, for
/// as long as it likes; it belongs to no communicator in particular. Movable; empty after a move.
///
///     // The rank that holds it:                              // All ranks, say before each epoch:
///     tutti::OpenMeetingPoint point({.port = 29400});         // `waiting` is the count, which they share
///     int waiting = point.waiting_count();                    if (waiting > 0)
///                                                               communicator = communicator.grow(
///                                                                   {.meeting_point = {.port = 29400},
///                                                                    .most = std::min(waiting, 4),
///                                                                    .fewest = 1,
///                                                                    .new_rank_timeout = 0ms});
///
/// In `grow` and `replace` at the same meeting point, the rank that holds it lets new processes in, instead
/// of the lowest rank. It asks those that came first, and takes those that answer first. A process that is
/// stopped delays the call only if fewer others answer than are wanted, and at most until the call's timeout.
/// Those that are too many go on waiting. If the rank that holds the point is lost, those that wait connect
/// again: to the lowest rank that is left, or to another process that opens the point. While that rank is
/// stopped, or alive but not in the call, nobody else can listen there: `grow` and `replace` at the point end
/// by their timeout.
///
/// A process waits until its own timeout (`JoinOptions::timeout`), and its error then says that it has waited
/// here. One that cannot become a rank is refused at once: with another secret, job or build, or in another
/// PID namespace. A process that does not prove that it knows the secret is not counted, is told nothing of
/// the others, and delays nobody. Such connections are limited as those to `tutti::tcp::Exchange` are.
///
/// A thread of this process accepts connections, and sleeps while there are none. Processes that are forked
/// from this one hold nothing open.
class TUTTI_EXPORT OpenMeetingPoint {
 public:
  /// Begins to listen at `point`, where `most_waiting` processes, 1 to 256, may wait at a time. Any more
  /// are turned away with this reason, and try again until their timeout.
  ///
  /// Throws Error(invalid_argument) for bad arguments; Error(transport_failure) with errno if the process
  /// cannot listen there, for instance because another one does; and Error(out_of_memory) if no thread can
  /// be started.
  explicit OpenMeetingPoint(const MeetingPoint& point, int most_waiting = 16);
  OpenMeetingPoint(OpenMeetingPoint&& other) noexcept;
  OpenMeetingPoint& operator=(OpenMeetingPoint&& other) noexcept;
  OpenMeetingPoint(const OpenMeetingPoint&) = delete;
  OpenMeetingPoint& operator=(const OpenMeetingPoint&) = delete;
  /// Closes the point, after a call that is letting processes in. Those that wait try to connect again.
  ~OpenMeetingPoint();

  /// Returns how many processes wait to be let in; 0 if it is empty. Thread-safe; reads one number, and waits
  /// for nobody.
  ///
  /// Only this process knows the number, and it may change at any time. So one rank must ask and tell the
  /// others, for instance with a tensor that they reduce anyway: ranks that asked for themselves could get
  /// different answers, and make different calls.
  [[nodiscard]] int waiting_count() const noexcept;

 private:
  std::shared_ptr<tcp::OpenPlace> place_;
};

}  // namespace tutti
