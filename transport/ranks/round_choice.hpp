// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "transport/ranks/round_plan.hpp"
#include "transport/tuning.hpp"
#include "tutti/device.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

/// How calls between processes go, by what they move. Nothing here depends on the rank.
namespace tutti::transport::ranks {

struct CallShape {
  Collective collective = Collective::broadcast;  ///< of one tensor; lists have more `tensors`
  std::size_t members = 0;
  std::size_t tensors = 1;  ///< of a member
  /// Bytes of what a root or each member has, or of the whole that is gathered or scattered.
  std::uint64_t payload = 0;
  std::uint64_t largest_tensor = 0;  ///< bytes
  std::uint64_t kept_by_root = 0;    ///< bytes of a scatter's or gather's payload
  bool has_rows_apart = false;       ///< parts are not single rows

  /// Bytes that the member with most to put has to put.
  [[nodiscard]] std::uint64_t largest_message() const noexcept;
  /// Bytes that some member has to send or to receive, if all are sent at once to those who add or keep them.
  [[nodiscard]] std::uint64_t busiest_member() const noexcept;
};

/// What a team can do.
struct TeamMeans {
  BackendKind backend = BackendKind::host;
  backend::TeamWindowLayout layout{};
  /// Operands that a rank can give for the others to read; 0: none.
  std::size_t most_given = 0;
  std::size_t most_members_of_a_rank = 1;
};

struct RoundChoice {
  Protocol protocol = Protocol::slots;
  /// Each member, but the root where there is one, gets or adds a share of what others want, and hands it on
  /// with low latency.
  bool is_relayed = false;

  friend bool operator==(const RoundChoice&, const RoundChoice&) = default;
};

/// Messages through slots are cut into pieces of so many bytes.
[[nodiscard]] std::uint64_t message_bytes(const TeamMeans& means) noexcept;

/// Which rounds carry it best, if rounds do.
[[nodiscard]] RoundChoice choose_rounds(const CallShape& shape, const TeamMeans& means) noexcept;

/// Why these.
[[nodiscard]] std::string reason_for(const CallShape& shape, const TeamMeans& means, RoundChoice rounds);

/// Whether they are as fast as NCCL.
[[nodiscard]] bool rounds_match_nccl(const CallShape& shape, const TeamMeans& means,
                                     RoundChoice rounds) noexcept;

}  // namespace tutti::transport::ranks
