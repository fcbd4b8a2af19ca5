// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/rounds/joint_capture.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/team/team.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Carries out the local members' parts of plans, one call after another, on their streams. The calls come in
/// the same order on all ranks, as `CallLog::post` sees to.
class RoundLauncher {
 public:
  RoundLauncher(Runtime& runtime, Team& team)
      : runtime_(runtime),
        team_(team),
        launching_(team.membership().local_count() > 1
                       ? runtime.extension<LaunchProbe>().find(team.membership().devices())
                       : Launching::from_one_thread),
        marks_calls_(runtime.backend().kind() == BackendKind::host),
        capture_(runtime) {}
  RoundLauncher(const RoundLauncher&) = delete;
  RoundLauncher& operator=(const RoundLauncher&) = delete;

  /// Has all `streams` join the capture that one of them is in, if it is in any, ahead of `begin`: what is
  /// allocated for them meanwhile is memory of the graph.
  void join_capture(std::span<const backend::StreamRef> streams) { is_captured_ = capture_.begin(streams); }
  /// Comes before anything else of a call but that. Throws what ended the team. Makes `streams`, one per
  /// local member, follow the calls before. If one of them is being captured, the others join the capture,
  /// and the calls before it are left alone: who launches the graph orders it with them.
  void begin(std::span<const backend::StreamRef> streams);
  /// Whether a call on `streams`, of which none is being captured, makes no stream wait for another: they are
  /// the ones of the call before. Other streams of the library's may follow once that call is over, which is
  /// forgotten then.
  [[nodiscard]] bool may_follow_on(std::span<const backend::StreamRef> streams);
  /// Of a team of one rank, which opens nothing: whether the members can be given the memory at `addresses`,
  /// by buffer, that the plan's parts give: it is aligned, and of their devices' caching allocators, which
  /// have made it reachable. Thread-safe.
  [[nodiscard]] bool may_expose(const RoundPlan& plan, std::span<std::byte* const> addresses) const;
  /// Queues the local members' parts. The binding has addresses by buffer of the plan's work and lanes by
  /// member; those of other ranks' members are not looked at. What they point to stays alive until the
  /// streams have passed. What the plan gives has been added to the team's registrations, or `may_expose` has
  /// said that it can be given.
  void launch(std::uint64_t sequence, const RoundPlan& plan, const Binding& binding);
  /// Marks a call that needs no rounds: it is complete when the local members' `lanes` have come here.
  void finish(std::uint64_t sequence, std::span<const backend::StreamRef> lanes);
  /// Ends a call, when everything of it has been queued, or as much as there will be if it has failed. Here
  /// and in `begin`, one stream may stand for all members: of work that is queued on it for all of their
  /// devices.
  void end(std::span<const backend::StreamRef> streams);
  /// Leaves a call that has begun and may not have come to its end: a capture that its streams are in goes on
  /// without it.
  void abandon() noexcept { capture_.abandon(); }

  /// Notes how far the streams of the last call have to come, for `has_passed`: behind what others have
  /// queued since, unless calls are marked as they are made.
  void mark() noexcept;
  [[nodiscard]] bool marks_calls() const noexcept { return marks_calls_; }
  /// Whether they have come there, or have failed.
  [[nodiscard]] bool has_passed() const noexcept;
  /// Throws what has failed on the devices since somebody asked.
  void check() const;
  /// Whether graphs may hold work of its calls, on whatever streams they are launched.
  [[nodiscard]] bool has_captured() const noexcept { return capture_.has_captured(); }
  [[nodiscard]] Launching launching() const noexcept { return launching_; }
  /// A stream of the capture that the call belongs to, if any.
  [[nodiscard]] std::optional<backend::StreamRef> captured() const noexcept {
    return is_captured_ ? std::optional(capture_.origin()) : std::nullopt;
  }

 private:
  /// Where a local member's calls have got to. A stream that is not the library's may be destroyed, and its
  /// handle be another's, before the next call: an event stands for it.
  struct Latest {
    backend::StreamRef stream;
    bool is_owned = false;  ///< by the library
    PooledEvent event;
    int event_device = 0;
  };
  void record(Latest& latest);
  void follow(const Latest& latest, backend::StreamRef stream);

  /// A part in the backend's terms, and the pointer tables that it points to.
  struct Task {
    backend::TeamRound round;
    std::vector<std::byte*> puts;
    std::vector<std::byte*> copies;
    std::vector<std::byte*> reductions;
    std::vector<std::byte*> exposed;
  };

  /// A task, and that of its relay.
  struct Tasks {
    Task task;
    Task relay;
  };
  /// What one launch carries out.
  struct Launch {
    std::uint64_t sequence;
    const RoundPlan& plan;
    std::span<std::byte* const> addresses;
    std::span<const backend::StreamRef> streams;
    backend::Reducing reducing;
    std::uint32_t most_multiprocessors;
  };
  /// All parts of local members, in one thread.
  void launch_in_turn(const Launch& launch);
  /// Each local member's parts in a thread of its own. Throws the first failure, which ends the team: others
  /// wait for what has not been launched.
  void launch_apart(const Launch& launch);
  /// Queues the local member's part number `next`, with its relay if it has one, by `tasks`, which are used
  /// again and again. Returns the number of the part after these.
  std::size_t launch_part(const Launch& launch, std::size_t local, std::size_t next, Tasks& tasks) const;
  /// Part number `index` of a local member, in `task`.
  void prepare(Task& task, const Launch& launch, std::size_t local, std::size_t index) const;
  /// What each reader is told of the memory that the part gives.
  void expose(const RoundPart& part, std::span<std::byte* const> addresses,
              std::vector<std::byte*>& exposed) const;

  Runtime& runtime_;
  Team& team_;
  Launching launching_;
  bool marks_calls_;               ///< on all streams, where that costs next to nothing
  std::uint64_t rounds_ = 0;       ///< of all calls so far
  std::vector<Latest> latest_;     ///< of local members; empty before the first call
  bool is_latest_marked_ = false;  ///< by `may_follow_on`
  JointCapture capture_;
  bool is_captured_ = false;  ///< the latest call
  Tasks tasks_;
  std::vector<std::size_t> next_;  ///< part of each local member, in a launch
};

}  // namespace tutti::transport::team
