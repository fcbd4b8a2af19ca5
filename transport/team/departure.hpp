// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/hosts/host_proxy.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/registrations/deferred_frees.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/shared/host_share.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/windows/windows.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Lets a rank leave its team safely: others' work may still use its device memory, and on several hosts
/// others may need its host proxy to hear from one another.
class Departure {
 public:
  /// `processes`, by rank, must stay valid until `defer_frees`.
  Departure(Runtime& runtime, const Membership& membership, const SharedState& state,
            const Progress& progress, const FailureDetector& failure_detector, const CallLog& calls,
            const Abort& abort, LocalNews& news, std::vector<PeerProcess>& processes);
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;
  ~Departure() = default;

  /// Says that the ranks that go on have another team: `leave` waits for nobody then.
  void note_successor() noexcept { has_successor_ = true; }
  /// Publishes the stage of departure that this rank has reached (`RankStatus::state`).
  void enter(std::uint32_t state) noexcept;
  /// Allocates what `defer_frees` needs, as memory may be short when the team ends. For teams whose members'
  /// devices hold the windows.
  void prepare(const Windows& windows, const Registrations& registrations);

  /// Waits for the other ranks; local queued work must be over. First it waits until running ranks are no
  /// longer late with calls that this one has made or messages that it has sent, for the longer of `patience`
  /// and the timeout. Then, for the timeout at most, it waits on several hosts for the others to leave too;
  /// and where members' devices hold the windows, until they need nothing more of this rank, and a moment
  /// longer for them to close its windows. It waits for no rank whose process is known to be gone, nor, on
  /// one host, for others of this process, which may need the thread that waits: they find this rank's memory
  /// as long as they need it.
  void leave(std::chrono::milliseconds patience, Windows& windows, Registrations* registrations,
             const HostProxy* host_proxy) noexcept;
  /// Leaves this rank's memory that others still have open to the runtime, which frees it once they report
  /// in `shared` that they have closed it. Ends `registrations`. The team's threads must have ended.
  void defer_frees(HostShare& shared, Windows& windows, std::optional<Registrations>& registrations) noexcept;

 private:
  /// Returns true if all other ranks that are not known to be gone have reached `state`.
  [[nodiscard]] bool are_all(std::uint32_t state) const noexcept;
  /// Returns true if the rank is never waited for: another one of this process, if there is one host.
  [[nodiscard]] bool is_left_alone(std::size_t rank) const noexcept;
  /// Returns true if all ranks that are waited for have closed this one's windows, or are gone.
  [[nodiscard]] bool have_others_left() const noexcept;
  /// Returns true if the rank has completed all calls that this one has made.
  [[nodiscard]] bool is_through(std::size_t rank) const noexcept;
  /// Returns true if the rank has received all messages that this one has sent to it, if none are captured.
  /// Until then its kernels write into this one's windows how many they have taken.
  [[nodiscard]] bool has_received(std::size_t rank) const noexcept;
  /// Returns true if a running rank is late with calls or messages of this one.
  [[nodiscard]] bool is_anyone_late() const noexcept;
  /// Returns true if the other rank will not look at this one's windows again.
  [[nodiscard]] bool needs_nothing(std::size_t rank) const noexcept;

  Runtime& runtime_;
  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  const CallLog& calls_;
  const Abort& abort_;
  LocalNews& news_;
  std::vector<PeerProcess>& processes_;
  bool has_successor_ = false;
  std::list<DeferredFrees::Left> left_;  ///< one, if `prepare` has been called
};

/// Frees what former teams have left on these devices and nobody has open any longer, if no team's calls are
/// under way. Must not be called within a team's call.
void free_deferred(Runtime& runtime, std::span<const int> devices) noexcept;

}  // namespace tutti::transport::team
