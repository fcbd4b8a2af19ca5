#pragma once

#include "collectives/team_call.hpp"

#include <string>

namespace tutti::collectives {

/// How data may travel between the members of a communicator, and why not otherwise, in a few lines.
[[nodiscard]] std::string explain(const TeamContext& context);

}  // namespace tutti::collectives
