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

/// How a rank leaves its team: others' work may still use its device memory, and on several hosts
/// others may need its host proxy to hear from one another.
class Departure {
 public:
  /// `processes`, by rank, stay where they are until `defer_frees`.
  Departure(Runtime& runtime, const Membership& membership, const SharedState& state,
            const Progress& progress, const FailureDetector& failure_detector, const CallLog& calls,
            const Abort& abort, LocalNews& news, std::vector<PeerProcess>& processes);
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;
  ~Departure() = default;

  /// Tells the others that this rank has come so far (`RankStatus::state`).
  void enter(std::uint32_t state) noexcept;
  /// Makes room for what `defer_frees` does, as there may be no memory for it when the team goes: for teams
  /// whose members' devices hold the windows.
  void prepare(const Windows& windows, const Registrations& registrations);

  /// Waits for the others, when local queued work is over. First it waits until ranks that give signs of life
  /// are no longer late with calls that this one has made, or messages that it has sent: for `patience`, or
  /// the timeout if that is longer. Then, for the timeout at most, it waits for them to come here too, where
  /// ranks are on several hosts; and where members' devices hold the windows, until they need nothing more of
  /// this rank, and a moment longer for them to close its windows. It waits for none whose process is known
  /// to be gone.
  void leave(std::chrono::milliseconds patience, Windows& windows, Registrations* registrations,
             const HostProxy* host_proxy) noexcept;
  /// Has the runtime free what others still have open of this rank once they have closed it; `shared` is
  /// where they say so. Ends `registrations`. No thread of the team's looks at anything any more.
  void defer_frees(HostShare& shared, Windows& windows, std::optional<Registrations>& registrations) noexcept;

 private:
  /// Whether all other ranks that are not known to be gone have come to `state`.
  [[nodiscard]] bool are_all(std::uint32_t state) const noexcept;
  /// Whether the rank has completed all calls that this one has made.
  [[nodiscard]] bool is_through(std::size_t rank) const noexcept;
  /// Whether the rank has received all messages that this one has sent to it, if none are captured: until
  /// then its kernels write into this one's windows what they have taken.
  [[nodiscard]] bool has_received(std::size_t rank) const noexcept;
  /// Whether a rank that goes on has not done either.
  [[nodiscard]] bool is_anyone_late() const noexcept;
  /// Whether another rank will not look at this one's windows again.
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
  std::list<DeferredFrees::Left> left_;  ///< one, if `prepare` has been called
};

/// Frees what teams that are no more have left on these devices and nobody has open any longer, if no team's
/// calls are under way. Never called within a call of a team's.
void free_deferred(Runtime& runtime, std::span<const int> devices) noexcept;

}  // namespace tutti::transport::team
