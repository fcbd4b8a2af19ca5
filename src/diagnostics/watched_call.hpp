// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/collectives.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {
class Runtime;
}

namespace tutti::watching {

/// The member of a team that makes a call.
struct WatchedMember {
  std::uint64_t team = 0;  ///< from `number_team`
  std::size_t rank = 0;
  std::size_t rank_count = 1;
  std::uint64_t sequence = 0;  ///< of the call; 0: none
};
/// Returns a number that no other team of the process has.
[[nodiscard]] std::uint64_t number_team() noexcept;

/// One launch of a collective, or of messages between members.
struct WatchedCall {
  Runtime* runtime = nullptr;
  std::string_view name{};  ///< of the called function, valid while the program runs
  std::string messages{};   ///< for messages: senders and receivers, in words
  std::uint64_t bytes = 0;
  PlanSummary plan{};
  /// Describes the plan; called only while the range is constructed.
  std::function<std::string()> explain{};
  /// The streams that the call is queued on, each at least once; those without a device are other processes'.
  std::span<const backend::StreamRef> streams{};
  std::optional<WatchedMember> member{};  ///< for a team's calls
};

}  // namespace tutti::watching
