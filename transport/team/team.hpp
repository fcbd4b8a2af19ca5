// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/calls/ended_calls.hpp"
#include "transport/team/calls/links.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/calls/replays.hpp"
#include "transport/team/calls/watchdog.hpp"
#include "transport/team/departure.hpp"
#include "transport/team/hosts/host_proxy.hpp"
#include "transport/team/hosts/mirror.hpp"
#include "transport/team/joining/bootstrap_exchange.hpp"
#include "transport/team/joining/introduction.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/shared/host_share.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/shrinking/survivor_messenger.hpp"
#include "transport/team/windows/windows.hpp"
#include "tutti/exchange.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// Owns the state of one communicator's ranks: who they are, the memory they share, their calls, and whether
/// they still go on. Each of these is a class of its own; the team constructs them, starts their threads, and
/// ends them in order.
class Team {
 public:
  using Settings = TeamSettings;

  /// Forms the team. Throws on all ranks if any rank cannot take part. Collective over the exchange.
  Team(Runtime& runtime, Exchange& exchange, const Settings& settings);
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  /// Leaves the team; local queued work must be over. Waits as `Departure::leave` says; windows that others
  /// have not closed by then are freed later.
  ~Team() { end(); }

  [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }
  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] const Membership& membership() const noexcept { return membership_; }
  /// Lets processes that are to become ranks open the memory behind `state`, until `withdraw_state`.
  [[nodiscard]] SharedMemory::Handle share_state() { return memory_.share(); }
  void withdraw_state() noexcept { memory_.withdraw(); }
  /// Returns the processes of the other ranks of this host, by rank; none for others.
  [[nodiscard]] const std::vector<PeerProcess>& processes() const noexcept { return processes_; }
  [[nodiscard]] const SharedState& state() const noexcept { return state_; }
  [[nodiscard]] LocalNews& news() noexcept { return news_; }
  [[nodiscard]] Abort& abort() noexcept { return abort_; }
  [[nodiscard]] const Abort& abort() const noexcept { return abort_; }
  [[nodiscard]] Progress& progress() noexcept { return progress_; }
  [[nodiscard]] const FailureDetector& failure_detector() const noexcept { return failure_detector_; }
  [[nodiscard]] const FlightRecord& flight_record() const noexcept { return record_; }
  [[nodiscard]] Waiting& waiting() noexcept { return waiting_; }
  [[nodiscard]] CallLog& calls() noexcept { return calls_; }
  [[nodiscard]] Links& links() noexcept { return links_; }
  [[nodiscard]] Watchdog& watch() noexcept { return watchdog_; }
  /// Drops the errors by which waits for local devices would report the team's end again.
  void take_ends() noexcept;
  [[nodiscard]] const Windows& windows() const noexcept { return windows_; }
  /// Returns nullptr where members do not reach one another's memory.
  [[nodiscard]] Registrations* registrations() noexcept {
    return registrations_ ? &*registrations_ : nullptr;
  }
  [[nodiscard]] const Registrations* registrations() const noexcept {
    return registrations_ ? &*registrations_ : nullptr;
  }
  /// Returns nullptr if there is one host.
  [[nodiscard]] HostProxy* host_proxy() const noexcept { return host_proxy_.get(); }
  /// Returns what carries an agreement of survivors between hosts; nullptr if there is one host, or if their
  /// network ends with the first rank. For one thread at a time.
  [[nodiscard]] SurvivorMessenger* survivor_messenger();
  /// Says that the ranks that go on have another team. If there are several hosts, leaving this one waits for
  /// nobody then.
  void note_successor() noexcept {
    if (host_proxy_ != nullptr) departure_.note_successor();
  }
  /// Returns the teams of this process, including this one if it has other members.
  [[nodiscard]] LiveTeams& live_teams() const noexcept { return *live_teams_; }

 private:
  Team(Runtime& runtime, BootstrapExchange&& exchange, const Settings& settings);
  Team(Runtime& runtime, BootstrapExchange& exchange, const Settings& settings, Introductions introductions);

  void share_registrations(BootstrapExchange& exchange);
  /// Starts the threads. Throws on all ranks if one cannot start.
  void start_together(BootstrapExchange& exchange);
  void start();
  void end() noexcept;

  Runtime& runtime_;
  const Settings settings_;
  const Membership membership_;
  std::shared_ptr<DescriptorPort> port_;  ///< over which others of this host get memory; none if they cannot
  std::vector<PeerProcess> processes_;    ///< by rank; none for this one and those of other hosts
  std::unique_ptr<Network> network_;      ///< until the host proxy has it
  LocalNews news_;
  HostShare memory_;
  const SharedState state_;  ///< in the memory
  Abort abort_;
  Progress progress_;
  const FailureDetector failure_detector_;
  const FlightRecord record_;
  Waiting waiting_;
  CallLog calls_;
  Links links_;
  Replays replays_;
  std::shared_ptr<LiveTeams> live_teams_;
  Windows windows_;
  std::optional<Registrations> registrations_;
  Departure departure_;
  EndedCalls ended_calls_;
  Watchdog watchdog_;
  std::optional<Mirror> mirror_;
  std::unique_ptr<HostProxy> host_proxy_;
  std::optional<SurvivorMessenger> survivor_messenger_;  ///< once it is needed
};

}  // namespace tutti::transport::team
