// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/nccl/connection.hpp"
#include "transport/team/team.hpp"

#include <memory>
#include <string>

namespace tutti::transport::team {

/// NCCL among the members of a team. Its communicators are made in the first call that uses them, which waits
/// on the host until all ranks have made it, and may take a second; when the team is ended they are aborted,
/// and what they have queued ends.
class TeamNccl : public nccl::Connection {
 public:
  /// Whether all ranks can, agreed upon by all: collective over the exchange. nullptr if not, and then
  /// `reason` says why, the same on all ranks.
  [[nodiscard]] static std::unique_ptr<TeamNccl> create(Runtime& runtime, Exchange& exchange, Team& team,
                                                        std::string& reason);

  /// Whether its communicators have been made, by all ranks, without which a call cannot be captured, and
  /// nothing can go that is no call of all ranks: then the binding has no `team`.
  [[nodiscard]] virtual bool is_connected() const noexcept = 0;
};

}  // namespace tutti::transport::team
