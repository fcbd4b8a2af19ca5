// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/join_request.hpp"
#include "collectives/nccl_api/meeting/meeting.hpp"
#include "tutti/device.hpp"
#include "tutti/nccl_api.h"

#include <optional>
#include <span>
#include <string>
#include <vector>

/// Makes communicators that NCCL carries.
namespace tutti::nccl_api {

/// Returns why NCCL, and not tutti, is to carry a communicator, or nothing. All ranks decide alike.
[[nodiscard]] std::optional<std::string> reason_for_nccl(std::span<const Party> parties);

/// Has NCCL make a communicator of the ranks that meet, or of these alone without a meeting, and handles for
/// these. Throws a `Refusal`, on all ranks alike, if one of them has no NCCL.
void make_by_nccl(std::span<const Joining> run, Meeting* meeting, const std::string& reason);
/// Has NCCL make a communicator of this process's devices alone, and a handle for each.
void make_by_nccl(ncclComm_t* results, const std::vector<Device>& devices);

/// Returns a handle for one of NCCL's.
[[nodiscard]] ncclComm_t handle_for_nccl(ncclComm_t nccl, int rank, int ranks, Device device);
/// Returns a handle for one that NCCL has made of another; null for none.
[[nodiscard]] ncclComm_t handle_for_part(ncclComm_t nccl, Device device);

}  // namespace tutti::nccl_api
