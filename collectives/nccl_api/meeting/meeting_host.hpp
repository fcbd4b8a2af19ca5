// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "os/descriptor.hpp"
#include "os/thread.hpp"

#include <map>
#include <memory>
#include <mutex>

namespace tutti::nccl_api {

class HeldMeeting;
class Visitor;

/// Holds the meetings of all unique ids that this process has made: one thread listens, takes what the ranks
/// send, and sends all of it to each. It needs none of them to be of this process. Lives as long as the
/// process. Thread-safe.
class MeetingHost {
 public:
  /// Returns the process's host, which begins to listen at the first call. Throws Error(transport_failure)
  /// with errno if it cannot.
  [[nodiscard]] static MeetingHost& get();

  /// Makes a new meeting, for which ranks may come until it has succeeded or failed. If `members` is more
  /// than 0, they come to a communicator of that many ranks, which grows.
  [[nodiscard]] MeetingAddress announce(int members = 0);
  /// Ends the meeting, if this process has announced it and nobody has come: the ranks need none, because one
  /// thread makes them all. Whoever comes later is refused.
  static void withdraw(const MeetingAddress& address);

 private:
  MeetingHost();
  void run();
  void admit();
  void serve(Visitor& visitor);
  void sort_in(Visitor& visitor);
  void end_late_meetings();
  void drop_ended();
  [[nodiscard]] int patience_ms();

  MeetingAddress address_{};
  Descriptor listener_;
  std::mutex mutex_;
  std::map<Token, std::unique_ptr<HeldMeeting>> meetings_;  ///< under the mutex
  std::map<int, std::unique_ptr<Visitor>> visitors_;        ///< by descriptor; of the thread alone
  backend::Thread thread_;
};

}  // namespace tutti::nccl_api
