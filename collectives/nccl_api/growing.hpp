// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/join_request.hpp"

#include <vector>

namespace tutti::nccl_api {

/// Adds the ranks of communicators that grow to those that join: finds out through each communicator where
/// its new ranks come, and has its ranks come there, too. Throws a `Refusal`, on all its ranks alike, if they
/// want different things; who waits there is told then.
[[nodiscard]] std::vector<Joining> with_members(std::vector<Joining> joinings, std::vector<Growing> growings);

}  // namespace tutti::nccl_api
