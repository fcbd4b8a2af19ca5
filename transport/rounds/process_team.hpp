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

/// Runs rounds of a single process on its own devices, as a team of one rank whose calls are not announced to
/// anybody. Callers take turns, from any thread. Calls are never late, as the program's streams may take
/// their time; but a device that has failed ends the team, so that the others do not wait for it.
///
/// A call's kernels wait for one another on the devices. To wait for hardly more than events would, no member
/// relays what others have put, and a turn is granted only if no stream has to follow another's calls: for
/// the streams of the call before, or for any that last (`Streams::lasts`) once that call is over. (Between
/// the launches on streams of the program that are not permanent, another of its threads might queue a wait
/// of one for the other.) One wait remains that events do not have: a member that puts bytes gets no more
/// than eight rounds ahead of those that take them. A member that exposes memory waits for its readers, as it
/// would with events.
class ProcessTeam {
 public:
  /// Forms the team of `devices`, two or more in ascending order, on a machine where kernels are launched
  /// from one thread. Waits for its own streams there. Throws Error(unsupported) if they do not reach one
  /// another's memory, and the backend's errors.
  ProcessTeam(Runtime& runtime, std::span<const int> devices);
  ProcessTeam(const ProcessTeam&) = delete;
  ProcessTeam& operator=(const ProcessTeam&) = delete;
  /// Waits until all calls are over.
  ~ProcessTeam();

  [[nodiscard]] const TeamCapabilities& capabilities() const noexcept { return capabilities_; }

  /// Works like `RoundLauncher::may_expose`.
  [[nodiscard]] bool may_expose(const RoundPlan& plan, std::span<std::byte* const> addresses) const {
    return launcher_.may_expose(plan, addresses);
  }
  /// Takes a turn: nobody else has one while the lock is held. The lock is not held if rounds cannot be
  /// launched now on these streams, one for each device, none of which may be captured.
  [[nodiscard]] std::unique_lock<std::mutex> take_turn(std::span<const backend::StreamRef> streams);

  /// Launches the rounds of a call in a turn: calls `queue` to launch them on the streams of the turn, which
  /// need not be made to follow the calls before. An exception of `queue` ends the team, as other devices may
  /// wait for what has not been launched; no turns are granted from then on.
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

/// Creates the teams of a process's own devices, by set of devices, when they are first needed, and keeps
/// them as long as the runtime. A part of the runtime; thread-safe.
class ProcessTeams {
 public:
  /// The most teams: every team's kernels need resources on a device while they wait, and windows memory.
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
  /// Returns the team of `devices`, two or more in ascending order.
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
