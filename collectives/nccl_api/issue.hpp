// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "tutti/communicator.hpp"

#include <span>

namespace tutti::nccl_api {

/// Makes the call of tutti for a rank that is its process's only one.
void issue(Communicator& communicator, const Call& call);

/// Issues a collective that every local member has called once: `calls` are theirs, in order of ranks.
void issue_of_all(Communicator& communicator, std::span<const Call> calls);

/// Makes as few calls of tutti as the collectives of the batches, one batch for each local member, allow:
/// runs of one kind become coalesced calls, broadcasts from (or reductions to) every rank in turn become an
/// `all_gather` (or a `reduce_scatter`). All ranks decide alike, as they decide by nothing but kinds, roots
/// and operations. Calls of a run on several streams run on the first one's, which waits for the others, and
/// these for it. Throws a `Refusal` if the members have called differently.
void issue_collectives(Communicator& communicator, std::span<Batch* const> batches);

/// Makes one batch of all messages.
void issue_messages(Communicator& communicator, std::span<Batch* const> batches);
/// Makes one batch of the messages of a rank that is its process's only one.
void issue_messages(Communicator& communicator, std::span<const Call> messages);

}  // namespace tutti::nccl_api
