// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/plan/plan.hpp"
#include "transport/rounds/process_rounds.hpp"
#include "transport/steps/joined_lanes.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport {

/// What a plan is launched on. The vectors by buffer grow by what the plan adds.
struct Operands {
  std::vector<std::byte*> addresses;      ///< by BufferId
  std::vector<backend::StreamRef> lanes;  ///< by LaneId
  std::vector<Storage*> storages;         ///< by BufferId; nullptr where the caller keeps the memory alive
  /// Buffers whose storages have not been told that their home lanes use them. A storage that the buffer
  /// before shares on the same lane is told once.
  std::vector<BufferId> unrecorded;
  ReduceOp operation;  ///< what elements are combined by
};

/// Enqueues all steps on the `operands`' lanes, none of which is being captured. Throws OutOfMemoryError
/// before anything is enqueued. Other threads may help (`launch_helpers.hpp`), but it returns when all is
/// enqueued.
void launch(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands);
/// Enqueues them into the graph that the operands' `lanes` have joined, and brings these back afterwards.
/// What the plan uses stays alive until the graph is destroyed. Throws OutOfMemoryError likewise.
void launch_captured(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
                     JoinedLanes& lanes);

/// For a plan of `process_rounds`: the turn to launch it on the operands' lanes, none of which is being
/// captured, if that can be done now: none would come to wait for another one's calls, and devices can be
/// given the memory that is read where it lies. If not, there is the plan `otherwise`. Throws
/// OutOfMemoryError.
[[nodiscard]] std::optional<team::ProcessTurn> take_turn(Runtime& runtime, const Plan& plan,
                                                         const Operands& operands);
/// Enqueues such a plan in its turn.
void launch_rounds(Runtime& runtime, const Plan& plan, Operands& operands, team::ProcessTurn& turn);

/// Enqueues a team's call on the streams of its local members, which follow the calls before it. What the
/// `operands` name is kept alive by the caller, until these streams have passed.
void launch_of_team(Runtime& runtime, const Plan& plan, Operands& operands,
                    std::span<const detail::IntrusivePtr<Storage>> temporaries, const TeamBinding& team);

/// Enqueues the body alone, between a fork from and a join to `home`, which takes the place of the home
/// lane's stream in `operands`. `temporaries` are the plan's.
void launch_body(Runtime& runtime, const Plan& plan, Operands& operands, backend::StreamRef home,
                 std::span<const detail::IntrusivePtr<Storage>> temporaries);

/// Memory for a plan's temporaries, of devices for first use on the streams of their `lanes`; nothing for
/// those of other processes. Throws OutOfMemoryError.
[[nodiscard]] std::vector<detail::IntrusivePtr<Storage>> allocate_temporaries(
    Runtime& runtime, const Plan& plan, std::span<const backend::StreamRef> lanes);

}  // namespace tutti::transport
