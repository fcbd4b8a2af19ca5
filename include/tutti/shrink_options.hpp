// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti {

/// Says what `Communicator::shrink` does about ranks that are alive and do not call it in time.
enum class LateRanks : std::uint8_t {
  fail,       ///< throws Error(timeout) on all ranks that have called it, naming the late ones
  leave_out,  ///< goes on without them; when they call it, they learn that by an Error(timeout)
};

/// Options of `Communicator::shrink`. `leaving` and `late` must be the same on all ranks.
struct ShrinkOptions {
  /// Ranks that leave although nothing is wrong with them. They need not call `shrink`; if they do, it
  /// returns an empty communicator once their calls are over.
  std::vector<int> leaving{};
  LateRanks late = LateRanks::fail;
  /// Longest wait for ranks that are alive: to call it, and again while they make the communicator. It begins
  /// anew if another rank is lost meanwhile. More than 0; more than a year counts as a year. Empty: the
  /// communicator's `timeout`.
  std::optional<std::chrono::milliseconds> timeout{};
};

}  // namespace tutti
