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

/// Opens and closes segments of other ranks' memory, as their registration tables ask for.
///
/// Opening is possible while a device waits in a kernel, so a separate thread does it that depends on nobody
/// else. Closing is not: it waits for the device, and kernels cannot be launched meanwhile, so that ranks
/// could come to wait for one another. Another thread closes segments when all local work of this team and of
/// others of the process is over and no call is being made; and never once calls of one of them have been
/// captured, as nobody knows when graphs run.
///
/// Memory of other ranks of this process needs no opening: its owner enters the address. Such a rank follows
/// when the owner takes it back, as soon as this team alone has no local work.
class PeerSegments {
 public:
  /// Starts the threads. Throws if one cannot start.
  PeerSegments(Runtime& runtime, const Membership& membership, RegistrationTables tables, CallLog& calls,
               Abort& abort, LiveTeams& live_teams);
  PeerSegments(const PeerSegments&) = delete;
  PeerSegments& operator=(const PeerSegments&) = delete;
  /// Closes all segments; no local work may use them any more.
  ~PeerSegments();

 private:
  [[nodiscard]] RegistrationTable& table() const noexcept { return tables_.own(); }
  /// An entry of another rank and the local member that follows it.
  struct Case {
    std::size_t rank;
    std::uint32_t entry;
    std::size_t local;
    std::uint64_t version;  ///< version of the entry
    RegistrationView& view;
  };
  template <class Visitor>
  void for_each_case(const Visitor& visit);
  /// Starts a thread that runs `loop`.
  [[nodiscard]] backend::Thread start(const backend::Thread::Role& role, void (PeerSegments::*loop)());
  /// Runs `loop` and reports its errors.
  void run(void (PeerSegments::*loop)());
  // The opener alone changes views that are not open; the closer alone changes those that are.
  void open_loop();
  void close_loop();
  void open(const Case& segment);
  /// Closes retired segments of other processes, and those of this one, if no local work may use them.
  [[nodiscard]] Attempt close_retired(bool has_others, bool has_own);
  [[nodiscard]] Attempt close_own();
  void close(const Case& segment);
  /// Returns true if the segment is open here, and its owner wants it closed.
  [[nodiscard]] bool is_retired(const Case& segment) const noexcept;
  [[nodiscard]] bool is_own(const Case& segment) const noexcept {
    return tables_.shares_process[segment.rank];
  }
  /// Ends the threads and closes all segments.
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
