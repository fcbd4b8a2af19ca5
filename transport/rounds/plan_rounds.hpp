// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/rounds/round_plan.hpp"

#include <cstddef>

namespace tutti::transport::team {

/// Returns the plan of `work` among `members`, for the `local_count` of them that start at `first_local`.
///
/// Every flow is put once by its source and read by all its targets, except what stays on a member. Every
/// input of a sum is put once, and added where the output is, in the order of the reduction's inputs: so the
/// result does not depend on how the work is cut into rounds. A stage has as many rounds as its largest
/// message needs.
///
/// In direct rounds nothing is put, and a stage takes one round for its flows and one for its sums of each
/// element type. A member must not write in a stage what others read there: bytes of inputs that are outputs
/// as well belong to one share, which only their member reads. The adding member writes all outputs of a sum;
/// in other protocols, flows bring it to the further ones. If flows are written, no target of a stage may
/// share memory with a source in it, unless that is the same bytes.
///
/// Low-latency rounds are as many as direct ones. Everything is a single row, and every rectangle is put
/// once, into the inboxes of all its readers. Where the flows of a stage pass on its sums, they are a relay.
///
/// Slots carry what the protocol cannot.
[[nodiscard]] RoundPlan plan_rounds(const TeamWork& work, std::size_t members, std::size_t first_local,
                                    std::size_t local_count, const RoundLimits& limits);
/// Returns one round without data, in which every member waits for every other.
[[nodiscard]] RoundPlan plan_barrier(std::size_t members, std::size_t first_local, std::size_t local_count);

}  // namespace tutti::transport::team
