// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime.hpp"
#include "transport/team/abort.hpp"
#include "transport/team/flight_record.hpp"
#include "transport/team/judgement.hpp"
#include "transport/team/membership.hpp"
#include "transport/team/shared_state.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::transport::ranks {

/// Waits of host threads for other ranks, and how they end: with what they wait for, with the team, or by
/// ending the team. That happens when they take too long (with a flight record), when a rank that they wait
/// for has left, or when a process is gone. Thread-safe.
class Waiting {
 public:
  /// Ranks that are still to do their part.
  using Missing = std::function<std::vector<std::size_t>()>;

  Waiting(Runtime& runtime, const Membership& membership, const SharedState& state, const Progress& progress,
          const Judgement& judgement, const FlightRecord& record, Abort& abort);
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() = default;

  /// Waits until `holds` says so, in call `sequence`. Throws what has ended the team.
  void wait_for(std::uint64_t sequence, const std::function<bool()>& holds) { wait(sequence, holds, {}); }
  /// Waits until `missing` tells of none; names those it tells of if that takes too long. Ends the team at
  /// once if one of them has left.
  void wait_for_ranks(std::uint64_t sequence, const Missing& missing);

  /// Ends the team because call `sequence` takes too long. `missing`: the ranks that are waited for, if that
  /// is known; else those that have not completed the call.
  void give_up(std::uint64_t sequence, const std::vector<std::size_t>& missing = {});
  /// Ends the team if the process of another rank of this host is gone without having left it.
  void look_for_lost_ranks();
  /// Ends the team if one of the ranks that `missing` tells of has left: it does not come any more.
  void look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing);

 private:
  void wait(std::uint64_t sequence, const std::function<bool()>& holds,
            const std::vector<std::size_t>& missing);
  [[nodiscard]] const RankStatus& status() const noexcept { return state_.status(membership_.rank()); }

  Runtime& runtime_;
  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const Judgement& judgement_;
  const FlightRecord& record_;
  Abort& abort_;
  std::atomic<std::uint64_t> waits_in_ = 0;  ///< the call in which a thread waits; or 0
};

}  // namespace tutti::transport::ranks
