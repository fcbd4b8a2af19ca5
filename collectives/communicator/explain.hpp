// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_context.hpp"
#include "tutti/communicator.hpp"

#include <string>

namespace tutti::collectives {

/// Explains how data may travel between the members of a communicator, and why not otherwise, in a few lines.
[[nodiscard]] std::string explain(const TeamContext& context);
/// Explains how a call described by `workload` would travel.
[[nodiscard]] std::string explain(const TeamContext& context, const Workload& workload);

}  // namespace tutti::collectives
