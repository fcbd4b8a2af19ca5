// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/progress/abort.hpp"

#include <cstddef>
#include <functional>

namespace tutti::transport::team {

/// Calls `launch(i)` for 0 to `count` - 1, at least once, each in a thread of its own but for the first, for
/// machines where launches return only when kernels have ended. Throws the first failure, which ends the
/// team: other members' kernels may wait for what has not been launched.
void launch_on_threads(Abort& abort, std::size_t count, const std::function<void(std::size_t)>& launch);

}  // namespace tutti::transport::team
