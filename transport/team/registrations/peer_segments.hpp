// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime.hpp"
#include "os/thread.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/registration_tables.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace tutti::transport::team {

/// Segments of other ranks' memory that this rank has open, as their tables of registrations ask for.
///
/// Opening goes on while a device waits in a kernel: a thread does it that depends on nobody else. Closing
/// does not: it waits for the device, and kernels cannot be launched meanwhile, so that ranks could come to
/// wait for one another. Another thread closes segments, when all local work of this team and of others of
/// the process is over and no call is being made; and never once calls of one of them have been captured, as
/// nobody knows when graphs run.
class PeerSegments {
 public:
  /// Throws if a thread cannot start.
  PeerSegments(Runtime& runtime, const Membership& membership, RegistrationTables tables, CallLog& calls,
               Abort& abort, LiveTeams& live_teams);
  PeerSegments(const PeerSegments&) = delete;
  PeerSegments& operator=(const PeerSegments&) = delete;
  /// Closes all segments: no local work uses any of them, nor will.
  ~PeerSegments();

 private:
  [[nodiscard]] RegistrationTable& table() const noexcept { return tables_.own(); }
  /// What a local member has to do with another rank's entry.
  struct Case {
    std::size_t rank;
    std::uint32_t entry;
    std::size_t local;
    std::uint64_t version;  ///< the entry's
    RegistrationView& view;
  };
  template <class Visitor>
  void for_each_case(const Visitor& visit);
  /// Starts a thread that does `loop`.
  [[nodiscard]] backend::Thread start(const backend::Thread::Role& role, void (PeerSegments::*loop)());
  /// What a thread does.
  void run(void (PeerSegments::*loop)());
  // A view that is not open is the opener's to change, and one that is, the closer's.
  void open_loop();
  void close_loop();
  void open(const Case& segment);
  void close(const Case& segment);
  /// Ends the threads, and closes all segments.
  void stop() noexcept;

  Runtime& runtime_;
  const Membership& membership_;
  const RegistrationTables tables_;
  CallLog& calls_;
  Abort& abort_;
  LiveTeams& live_teams_;
  std::mutex opened_mutex_;
  std::map<std::array<std::size_t, 3>, void*> opened_;  ///< by rank, entry, local index
  std::atomic<bool> is_stopping_ = false;
  backend::Thread opener_;
  backend::Thread closer_;
};

}  // namespace tutti::transport::team
