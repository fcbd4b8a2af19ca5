// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/join_request.hpp"
#include "collectives/nccl_api/meeting/meeting_protocol.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"

#include <functional>
#include <vector>

namespace tutti::nccl_api {

/// Makes the communicators that the ranks join, and returns when all their other ranks have come. Ranks whose
/// numbers follow one another become local members of one communicator of tutti. Throws a `Refusal` if one
/// cannot be made, or what `require_wish` throws, which is called several times a second while ranks wait for
/// others, by any thread; there is no handle then.
void join(std::vector<Joining> joinings, const std::function<void()>& require_wish = {});
/// Makes a communicator of this process's devices alone, and a handle for each.
void join_alone(ncclComm_t* results, const std::vector<Device>& devices);
/// Takes handles from the program, and with the last one of a clique its communicator.
void destroy(const std::vector<ncclComm_t>& handles);
/// Splits communicators, all at the same time. Other threads make the calls of local ranks that are not among
/// `splittings`. There is no handle if one of the communicators cannot be split.
void split(std::vector<Splitting> splittings);
/// Makes a communicator of the ranks that are not in `excluded`, and ends the one that it comes from. Throws
/// a `Refusal` if ranks have been made together.
void shrink(ncclComm_t comm, std::vector<int> excluded, ncclComm_t* result);

/// Returns whether tutti has made the unique id.
[[nodiscard]] bool is_of_tutti(const ncclUniqueId& id) noexcept;
/// Returns the content of a unique id. Throws a `Refusal` if it is none of tutti's.
[[nodiscard]] MeetingAddress meeting_of(const char* function, const char* argument, const ncclUniqueId& id);
/// Returns a unique id of a meeting that `announce` makes. Throws a `Refusal` if `NCCL_COMM_ID` is set.
[[nodiscard]] ncclUniqueId new_id(const char* function, const std::function<MeetingAddress()>& announce);

}  // namespace tutti::nccl_api
