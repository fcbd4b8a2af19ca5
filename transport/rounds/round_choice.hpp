// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "transport/plan/shape.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_plan.hpp"
#include "tutti/collectives.hpp"
#include "tutti/device.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

/// Chooses how a team's calls are carried out, from what they move. The choice does not depend on the rank.
namespace tutti::transport::team {

class TeamNccl;

/// A team's capabilities, as far as choices and plans depend on them: the same on all ranks, except for which
/// members are local.
struct TeamCapabilities {
  BackendKind backend = BackendKind::host;
  backend::TeamWindowLayout layout{};
  /// The most operands that a rank can expose; 0: none.
  std::size_t most_exposed = 0;
  /// Members may relay what they have received: then members wait for one another's streams, too.
  bool may_relay = true;
  std::size_t most_members_of_a_rank = 1;
  std::size_t first_local = 0;
  std::size_t local_count = 0;
  bool spans_hosts = false;
  /// The kind of windows: p2p in device memory, or staged in the host's, with the reason why not p2p.
  TransportKind windows = TransportKind::staged;
  std::string windows_reason{};
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;  ///< that a kernel may hold
  std::shared_ptr<TeamNccl> nccl{};                                   ///< none: NCCL carries nothing
  std::string nccl_refusal{};                                         ///< the reason for that
};

struct RoundChoice {
  Protocol protocol = Protocol::slots;
  /// Every member except the root fetches or adds a share of the result and sends it on with low latency.
  bool is_relayed = false;
  /// In a direct round, members write to the destination instead of reading from the source.
  bool is_written = false;

  friend bool operator==(const RoundChoice&, const RoundChoice&) = default;
};

/// Returns the bytes of the pieces into which messages through slots are cut.
[[nodiscard]] std::uint64_t message_bytes(const TeamCapabilities& capabilities) noexcept;

/// Returns the size above which messages from one member to another are written directly to the receiver's
/// memory, if possible: the same on all ranks.
[[nodiscard]] std::uint64_t direct_messages_from(const TeamCapabilities& capabilities) noexcept;

/// Returns the rounds that carry a call of this shape best, if rounds do.
[[nodiscard]] RoundChoice choose_rounds(const CallShape& shape,
                                        const TeamCapabilities& capabilities) noexcept;

/// The most bytes that a member may send or receive in low-latency rounds of calls on one tensor: for the
/// collective with the lowest limit, and for that with the highest. 0 where there are no such rounds.
struct LowLatencyLimits {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};
[[nodiscard]] LowLatencyLimits low_latency_limits(std::size_t members,
                                                  const TeamCapabilities& capabilities) noexcept;

/// Explains why `rounds` have been chosen.
[[nodiscard]] std::string reason_for(const CallShape& shape, const TeamCapabilities& capabilities,
                                     RoundChoice rounds);

/// Returns true if `rounds` are as fast as NCCL.
[[nodiscard]] bool rounds_match_nccl(const CallShape& shape, const TeamCapabilities& capabilities,
                                     RoundChoice rounds) noexcept;

}  // namespace tutti::transport::team
