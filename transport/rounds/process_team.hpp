// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime.hpp"
#include "os/thread.hpp"
#include "transport/plan/plan.hpp"
#include "transport/rounds/round_choice.hpp"
#include "transport/rounds/round_launcher.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/team/joining/single_rank_exchange.hpp"
#include "transport/team/team.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Devices of this process that carry out rounds of what it does alone: a team of one rank, whose calls
/// nobody is told of, as nobody else makes them. They take turns; any thread may make them. They are
/// never late, as a stream of the program's may take its time; but a device that has failed ends the team, so
/// that the others do not wait for it.
///
/// A call's kernels wait for one another on the devices. So that they wait for hardly more than its events
/// would have them wait for, nobody hands on what others have put, and a turn is given for streams alone on
/// which no stream comes to follow another's calls: those of the call before, or any of the library's once
/// that call is over. One wait is theirs alone: who puts bytes gets no more than eight rounds ahead of those
/// who take them. Who gives memory waits for its readers, as it would by events.
class ProcessTeam {
 public:
  /// `devices` are two or more, ascending; where kernels are launched from one thread. Waits for streams of
  /// its own there. Throws Error(unsupported) if they do not reach one another's memory, and what the
  /// backend throws.
  ProcessTeam(Runtime& runtime, std::span<const int> devices);
  ProcessTeam(const ProcessTeam&) = delete;
  ProcessTeam& operator=(const ProcessTeam&) = delete;
  /// Waits until all calls are over.
  ~ProcessTeam();

  [[nodiscard]] const TeamCapabilities& capabilities() const noexcept { return capabilities_; }

  /// As `RoundLauncher::may_expose`.
  [[nodiscard]] bool may_expose(const RoundPlan& plan, std::span<std::byte* const> addresses) const {
    return launcher_.may_expose(plan, addresses);
  }
  /// Nobody else has a turn while the lock is held. It is not held where rounds cannot be launched now on
  /// these streams, one for each device, none of which is being captured.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn(std::span<const backend::StreamRef> streams);

  /// In a turn: has `queue` launch the rounds of a call, as it is told, on the streams of the turn, which
  /// need not be made to follow the calls before. What it throws ends the team, as other devices may wait for
  /// what has not been launched; no turns are given from then on.
  template <class Queue>
  void launch(std::span<const backend::StreamRef> streams, const Queue& queue) {
    try {
      const TeamBinding call{.launcher = launcher_, .sequence = team_.calls().number()};
      queue(call);
      launcher_.end(streams);
      team_.calls().has_queued(call.sequence);
    } catch (...) {
      end_after(backend::Escaped::current(), streams);
      throw;
    }
  }

 private:
  void end_after(const backend::Escaped& escaped, std::span<const backend::StreamRef> streams) noexcept;

  Runtime& runtime_;
  SingleRankExchange alone_;
  Team team_;
  RoundLauncher launcher_;
  TeamCapabilities capabilities_;
};

/// The teams of a process's own devices, by set of devices: made when first needed, and kept as long as the
/// runtime. A runtime extension; thread-safe.
class ProcessTeams {
 public:
  /// Every team's kernels need room on a device of their own while they wait, and windows memory.
  static constexpr std::size_t most_teams = 4;

  explicit ProcessTeams(Runtime& runtime);
  ProcessTeams(const ProcessTeams&) = delete;
  ProcessTeams& operator=(const ProcessTeams&) = delete;
  ~ProcessTeams() = default;

  struct Found {
    ProcessTeam* team = nullptr;
    std::string refusal{};    ///< why there is none
    bool is_for_now = false;  ///< there may be one later
  };
  /// The team of `devices`, two or more, ascending.
  [[nodiscard]] Found find_or_make(std::span<const int> devices);

 private:
  struct Entry {
    std::vector<int> devices;
    std::unique_ptr<ProcessTeam> team;
    std::string refusal;
  };

  [[nodiscard]] Entry make(std::span<const int> devices) const;

  Runtime& runtime_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace tutti::transport::team
