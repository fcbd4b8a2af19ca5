// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "transport/rounds/round_plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Tells who watches streams (`backend::WatchCalls`) what rounds mean that are about to be queued: what
/// members put, and what others read of the memory that they give; and which local members' streams follow
/// which others' earlier work when they come to write. `streams` are the local members'. Called only
/// where somebody watches.
void tell_of_rounds(backend::Backend& backend, const RoundPlan& plan, const backend::TeamWindowLayout& layout,
                    std::span<std::byte* const> addresses, std::span<const backend::StreamRef> streams);

/// Which local members follow which others by the rounds of `plan`, by index among the local ones: those
/// whose messages they read, and those who have read what they gave, and whom these follow by then. With
/// members in other processes, whose plans are not known here, all follow all.
[[nodiscard]] std::vector<backend::MeetingOrder> orders_after(const RoundPlan& plan);

}  // namespace tutti::transport::team
