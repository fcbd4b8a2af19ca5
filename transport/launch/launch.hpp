// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/launch/operands.hpp"
#include "transport/launch/stand_ins.hpp"
#include "transport/plan/plan.hpp"
#include "transport/rounds/process_rounds.hpp"
#include "transport/steps/joined_lanes.hpp"
#include "tutti/tensor.hpp"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti::transport {

/// Enqueues all steps on the `operands`' lanes, none of which may be captured, between the copies to and from
/// the stand-ins that are among the operands. Throws OutOfMemoryError before anything is enqueued. Other
/// threads may help (`launch_helpers.hpp`), but all is enqueued when it returns.
void launch(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
            const StandIns& stand_ins);
/// Enqueues the same into the graph that the operands' `lanes` have joined, and restores the lanes
/// afterwards. What the plan uses stays alive until the graph is destroyed. Throws OutOfMemoryError before
/// anything is enqueued.
void launch_captured(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
                     JoinedLanes& lanes, const StandIns& stand_ins);

/// Takes a turn in which a plan of `process_rounds` can be launched on the operands' lanes, none of which may
/// be captured. Returns nothing if that is not possible now, because a lane might wait for another one's
/// calls, or because devices cannot expose the memory that is read in place; then the caller uses the plan
/// `otherwise`. Throws OutOfMemoryError.
[[nodiscard]] std::optional<team::ProcessTurn> take_turn(Runtime& runtime, const Plan& plan,
                                                         const Operands& operands);
/// Enqueues a plan of `process_rounds` in its turn.
void launch_rounds(Runtime& runtime, const Plan& plan, Operands& operands, team::ProcessTurn& turn);

/// Enqueues a team's call on the streams of its local members, after the calls before it. The caller keeps
/// the `operands`' memory alive until these streams have passed.
void launch_of_team(Runtime& runtime, const Plan& plan, Operands& operands,
                    std::span<const detail::IntrusivePtr<Storage>> temporaries, const TeamBinding& team);

/// Enqueues the body only, between a fork from and a join to `home`, which replaces the home lane's stream in
/// `operands`, and before and after it the copies to and from stand-ins. `temporaries` are the plan's.
void launch_body(Runtime& runtime, const Plan& plan, Operands& operands, backend::StreamRef home,
                 std::span<const detail::IntrusivePtr<Storage>> temporaries, const StandIns& stand_ins);

/// Allocates a plan's temporaries, for first use on the streams of their `lanes`; nothing for those of other
/// processes. Throws OutOfMemoryError.
[[nodiscard]] std::vector<detail::IntrusivePtr<Storage>> allocate_temporaries(
    Runtime& runtime, const Plan& plan, std::span<const backend::StreamRef> lanes);

}  // namespace tutti::transport
