// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Says which users' processes may open memory that a process shares, provided that they know its handle.
enum class Audience : std::uint8_t {
  anyone,     ///< processes of any user: ranks may belong to different ones
  same_user,  ///< processes of the user that the sharing process runs as when it is asked, and of root
};

}  // namespace tutti
