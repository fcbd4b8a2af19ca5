// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "transport/plan/plan.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/rounds/joint_capture.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/team/team.hpp"
#include "transport/threads/launch_helpers.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Carries out the local members' parts of plans, one call after another, on their streams. The calls come in
/// the same order on all ranks, which `CallLog::post` ensures.
class RoundLauncher {
 public:
  RoundLauncher(Runtime& runtime, Team& team)
      : runtime_(runtime),
        team_(team),
        launching_(team.membership().local_count() > 1
                       ? runtime.part<LaunchProbe>().find(team.membership().devices())
                       : Launching::from_one_thread),
        helpers_(runtime.part<LaunchHelpers>().shared_from_this()),
        marks_calls_(runtime.backend().kind() == BackendKind::host),
        capture_(runtime),
        tasks_(team.membership().local_count()) {}
  RoundLauncher(const RoundLauncher&) = delete;
  RoundLauncher& operator=(const RoundLauncher&) = delete;

  /// Makes all `streams` join the capture that one of them is in, if any, ahead of `begin`: what is allocated
  /// for them meanwhile is memory of the graph.
  void join_capture(std::span<const backend::StreamRef> streams) { is_captured_ = capture_.begin(streams); }
  /// Begins a call; only `join_capture` may come before it. Throws the error that has ended the team. Makes
  /// `streams`, one per local member, follow the calls before. If one of them is being captured, the others
  /// join the capture and do not follow the calls before: whoever launches the graph orders it with them.
  void begin(std::span<const backend::StreamRef> streams);
  /// Returns true if a call on `streams`, none of which may be captured, makes no stream wait for another:
  /// they are the ones of the call before. Other streams that last may follow once that call is over;
  /// the launcher then forgets it.
  [[nodiscard]] bool may_follow_on(std::span<const backend::StreamRef> streams);
  /// Returns true if the members can expose the memory at `addresses`, by buffer, that the plan's parts
  /// expose: it is aligned, and of their devices' caching allocators, which have made it reachable. For teams
  /// of one rank, which open nothing. Thread-safe.
  [[nodiscard]] bool may_expose(const RoundPlan& plan, std::span<std::byte* const> addresses) const;
  /// Queues the local members' parts. The binding has addresses by buffer of the plan's work and lanes by
  /// member; those of other ranks' members are not used. Their memory stays alive until the streams have
  /// passed. What the plan exposes must have been added to the team's registrations, or `may_expose` must
  /// have returned true.
  void launch(std::uint64_t sequence, const RoundPlan& plan, const Binding& binding);
  /// Marks a call that needs no rounds: it is complete when the local members' `lanes` have come to this
  /// point.
  void finish(std::uint64_t sequence, std::span<const backend::StreamRef> lanes);
  /// Ends a call, when everything of it has been queued, or as much as there will be if it has failed. Here
  /// and in `begin`, one stream may stand for all members, if work for all of their devices is queued on it.
  void end(std::span<const backend::StreamRef> streams);
  /// Returns the event that `end` has recorded on a local member's stream; nullptr if it has recorded none
  /// there. Later calls record another one while the caller holds this one.
  [[nodiscard]] std::shared_ptr<const PooledEvent> end_of_call(std::size_t local) const;
  /// Abandons a call that has begun, whether or not it has ended. If its streams are being captured, the
  /// capture goes on without the call.
  void abandon() noexcept { capture_.abandon(); }

  /// Sets the point that the last call's streams must pass for `has_passed`: the end of what is queued there
  /// now. Does nothing if each call sets it as it is made (`marks_calls`).
  void mark() noexcept;
  [[nodiscard]] bool marks_calls() const noexcept { return marks_calls_; }
  /// Returns true if the streams have come to the mark, or have failed.
  [[nodiscard]] bool has_passed() const noexcept;
  /// Throws failures on the devices since the last check.
  void check() const;
  /// Returns true if graphs may hold work of its calls, on whatever streams they are launched.
  [[nodiscard]] bool has_captured() const noexcept { return capture_.has_captured(); }
  [[nodiscard]] Launching launching() const noexcept { return launching_; }
  [[nodiscard]] bool is_captured() const noexcept { return is_captured_; }
  /// Returns a stream of each graph that the call is captured into, none if it is not captured.
  [[nodiscard]] std::span<const backend::StreamRef> captured() const noexcept {
    return is_captured_ ? capture_.origins() : std::span<const backend::StreamRef>();
  }

 private:
  /// The point that a local member's calls have reached. A stream that need not last may be destroyed, and
  /// its handle reused, before the next call: an event stands for it then. Its number tells whether the same
  /// stream makes the next call, which need not wait for itself.
  struct Latest {
    backend::StreamRef stream;
    bool lasts = false;           ///< see `Streams`
    bool is_same_stream = false;  ///< the call that has begun uses this stream, whose number is known
    std::uint64_t number = 0;     ///< of a stream that need not last (`StreamCalls::stream_id`)
    std::shared_ptr<PooledEvent> event{};
    int event_device = 0;
  };
  /// Ends the call of one local member, on its stream.
  void end(Latest& latest, backend::StreamRef stream);
  void record(Latest& latest, backend::StreamRef stream);
  void follow(const Latest& latest, backend::StreamRef stream);
  [[nodiscard]] bool is_same(const Latest& latest, backend::StreamRef stream) const;

  /// A part in the backend's form, and the pointer tables that it points to.
  struct Task {
    backend::TeamRound round;
    std::vector<std::byte*> puts;
    std::vector<std::byte*> copies;
    std::vector<std::byte*> reductions;
    std::vector<std::byte*> exposed;
  };

  /// A task and its relay's task.
  struct Tasks {
    Task task;
    Task relay;
  };
  /// The arguments of one launch.
  struct Launch {
    std::uint64_t sequence;
    const RoundPlan& plan;
    std::span<std::byte* const> addresses;
    std::span<const backend::StreamRef> streams;
    backend::Reducing reducing;
  };
  /// Finds how many multiprocessors each local member's kernels may hold.
  void take_room(const RoundPlan& plan, std::uint32_t most_multiprocessors);
  /// Launches all parts of local members round by round. Other threads may help with each round.
  void launch_in_turn(const Launch& launch);
  /// Returns true unless it matters which thread queues the parts, and in what order.
  [[nodiscard]] bool may_have_help(const Launch& launch) const;
  /// Launches each local member's parts in a thread of its own. Throws the first failure, which ends the
  /// team: others wait for what has not been launched.
  void launch_apart(const Launch& launch) const;
  /// Queues the local member's part number `next`, with its relay if it has one. `tasks` are reused memory.
  /// Returns the number of the part after these.
  std::size_t launch_part(const Launch& launch, std::size_t local, std::size_t next, Tasks& tasks) const;
  /// Prepares part number `index` of a local member in `task`.
  void prepare(Task& task, const Launch& launch, std::size_t local, std::size_t index) const;
  /// Collects the addresses by which each reader finds the memory that the part exposes.
  void expose(const RoundPlan& plan, const RoundPart& part, std::span<std::byte* const> addresses,
              std::vector<std::byte*>& exposed) const;

  Runtime& runtime_;
  Team& team_;
  Launching launching_;
  std::shared_ptr<LaunchHelpers> helpers_;
  bool marks_calls_;               ///< on all streams, where that is nearly free
  std::uint64_t rounds_ = 0;       ///< of all calls so far
  std::vector<Latest> latest_;     ///< of local members; empty before the first call
  bool is_latest_marked_ = false;  ///< by `may_follow_on`
  JointCapture capture_;
  bool is_captured_ = false;  ///< the latest call
  // The next four describe the present launch, by local member.
  std::vector<DeviceRoom::Part> room_;
  std::vector<Tasks> tasks_;           ///< memory that is used again
  std::vector<std::size_t> next_;      ///< parts
  std::vector<std::size_t> in_round_;  ///< the members that have a part in the present round
};

}  // namespace tutti::transport::team
