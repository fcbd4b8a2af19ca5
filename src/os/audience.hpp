// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tutti {

/// Limits who may open memory that a process shares, among those who know by which numbers it is found.
enum class Audience : std::uint8_t {
  anyone,     ///< processes of any user: ranks may be of different ones
  same_user,  ///< processes of the user that the sharing process runs as at that time, and of root
};

}  // namespace tutti
