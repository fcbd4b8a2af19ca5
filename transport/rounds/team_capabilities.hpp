// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/rounds/round_choice.hpp"
#include "transport/team/team.hpp"
#include "tutti/device.hpp"

namespace tutti::transport::team {

/// Returns the team's capabilities without NCCL.
[[nodiscard]] inline TeamCapabilities capabilities_of(const Team& team, BackendKind backend) {
  const Windows& windows = team.windows();
  const bool may_expose = team.settings().is_direct && team.registrations() != nullptr;
  return {.backend = backend,
          .layout = windows.layout(),
          .most_exposed = may_expose ? Registrations::most_exposed : 0,
          .most_members_of_a_rank = team.membership().most_members_of_a_rank(),
          .first_local = team.membership().first_local(),
          .local_count = team.membership().local_count(),
          .spans_hosts = team.membership().spans_hosts(),
          .windows = windows.transport(),
          .windows_reason = windows.reason(),
          .most_multiprocessors = team.settings().most_multiprocessors};
}

}  // namespace tutti::transport::team
