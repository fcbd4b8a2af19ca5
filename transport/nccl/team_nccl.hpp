// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/nccl/connection.hpp"
#include "transport/team/team.hpp"

#include <memory>
#include <string>

namespace tutti::transport::team {

/// Uses NCCL among the members of a team. Its communicators are made in the first call that uses them, which
/// waits on the host until all ranks have made it, and may take a second. When the team is ended they are
/// aborted, and what they have queued ends.
class TeamNccl : public nccl::Connection {
 public:
  /// Creates it if all ranks can use NCCL. Otherwise returns nullptr, and `reason` says why, the same on all
  /// ranks. Collective over the exchange.
  [[nodiscard]] static std::unique_ptr<TeamNccl> create(Runtime& runtime, Exchange& exchange, Team& team,
                                                        std::string& reason);

  /// Returns true if all ranks have made its communicators. Before that a call cannot be captured, and only
  /// calls of all ranks can be carried; for others the binding has no `team`.
  [[nodiscard]] virtual bool is_connected() const noexcept = 0;
};

}  // namespace tutti::transport::team
