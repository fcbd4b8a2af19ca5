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

/// How a team's calls go, by what they move. Nothing here depends on the rank.
namespace tutti::transport::team {

class TeamNccl;

/// What a team can do, as far as choices and plans depend on it: the same on all ranks, but for which members
/// are local.
struct TeamCapabilities {
  BackendKind backend = BackendKind::host;
  backend::TeamWindowLayout layout{};
  /// Operands that a rank can give for the others to read; 0: none.
  std::size_t most_exposed = 0;
  /// Members may hand on what they have got: then these wait for one another's streams, too.
  bool may_relay = true;
  std::size_t most_members_of_a_rank = 1;
  std::size_t first_local = 0;
  std::size_t local_count = 0;
  bool spans_hosts = false;
  /// What windows are made of: p2p in device memory, staged in the host's, and then why not p2p.
  TransportKind windows = TransportKind::staged;
  std::string windows_reason{};
  std::uint32_t most_multiprocessors = backend::all_multiprocessors;  ///< that a kernel may hold
  std::shared_ptr<TeamNccl> nccl{};                                   ///< none: it carries nothing
  std::string nccl_refusal{};                                         ///< why not
};

struct RoundChoice {
  Protocol protocol = Protocol::slots;
  /// Each member, but the root where there is one, gets or adds a share of what others want, and hands it on
  /// with low latency.
  bool is_relayed = false;
  /// Directly, members write what they have to where it goes, in place of reading what others have.
  bool is_written = false;

  friend bool operator==(const RoundChoice&, const RoundChoice&) = default;
};

/// Messages through slots are cut into pieces of so many bytes.
[[nodiscard]] std::uint64_t message_bytes(const TeamCapabilities& capabilities) noexcept;

/// Messages from one member to another of more bytes than so many are written where they are received, if
/// that can be: the same on all ranks.
[[nodiscard]] std::uint64_t direct_messages_from(const TeamCapabilities& capabilities) noexcept;

/// Which rounds carry a call of this shape best, if rounds do.
[[nodiscard]] RoundChoice choose_rounds(const CallShape& shape,
                                        const TeamCapabilities& capabilities) noexcept;

/// What a member may send or receive in low-latency rounds, of calls on one tensor: of the collective with
/// the least, and of that with the most. 0 where there are no such rounds.
struct LowLatencyLimits {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};
[[nodiscard]] LowLatencyLimits low_latency_limits(std::size_t members,
                                                  const TeamCapabilities& capabilities) noexcept;

/// Why `rounds` have been chosen, for people to read.
[[nodiscard]] std::string reason_for(const CallShape& shape, const TeamCapabilities& capabilities,
                                     RoundChoice rounds);

/// Whether `rounds` are as fast as NCCL.
[[nodiscard]] bool rounds_match_nccl(const CallShape& shape, const TeamCapabilities& capabilities,
                                     RoundChoice rounds) noexcept;

}  // namespace tutti::transport::team
