// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "transport/rounds/round_plan.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Tells the stream sanitizer (`backend::WatchCalls`) what rounds that are about to be queued mean: what
/// members put, and what others read of the memory that they expose; and which local members' streams follow
/// which others' earlier work when they come to write. `streams` are the local members'. Called only if
/// streams are watched.
void tell_of_rounds(backend::Backend& backend, const RoundPlan& plan, const backend::TeamWindowLayout& layout,
                    std::span<std::byte* const> addresses, std::span<const backend::StreamRef> streams);

/// Returns which local members follow which others by the rounds of `plan`, by index among the local ones:
/// those whose messages they read, and those that have read what they exposed. If other processes have
/// members, whose plans are unknown here, all follow all.
[[nodiscard]] std::vector<backend::MeetingOrder> orders_after(const RoundPlan& plan);

}  // namespace tutti::transport::team
