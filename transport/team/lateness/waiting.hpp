// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/team/lateness/call_patience.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/lateness/late_warnings.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// Waits of host threads for other ranks, and how they end: with what they wait for, with the team, or by
/// ending the team. That happens when they take longer than the call's patience (with a flight record), or
/// than the timeout for a rank that gives no sign of life, when a rank that they wait for has left, or when a
/// process is gone. Who is late is told before. Thread-safe.
class Waiting {
 public:
  /// Ranks that are still to do their part.
  using Missing = std::function<std::vector<std::size_t>()>;

  Waiting(Runtime& runtime, const Membership& membership, const SharedState& state, const Progress& progress,
          const FailureDetector& failure_detector, const FlightRecord& record, Abort& abort,
          std::chrono::milliseconds patience);
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() = default;

  /// Waits until `holds` says so, in call `sequence`. Throws what has ended the team.
  void wait_for(std::uint64_t sequence, const std::function<bool()>& holds) {
    wait(sequence, holds, {}, std::nullopt);
  }
  /// Waits until `missing` tells of none; names those it tells of if that takes too long. Ends the team at
  /// once if one of them has left. `limit`: how long it may take, instead of the call's patience.
  void wait_for_ranks(std::uint64_t sequence, const Missing& missing,
                      std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// How patient calls are.
  [[nodiscard]] CallPatience& patience() noexcept { return patience_; }
  /// Looks at the call, which is not complete and has waited for other ranks so long: tells of it, or ends
  /// the team.
  void look_at_call(std::uint64_t sequence, std::chrono::nanoseconds waited);
  /// Calls up to this one are complete.
  void have_completed(std::uint64_t sequence) noexcept { warnings_.goes_on(sequence); }
  /// Ends the team if the process of another rank of this host is gone without having left it.
  void look_for_lost_ranks();
  /// Ends the team if one of the ranks that `missing` tells of has left: it does not come any more.
  void look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing);

 private:
  void wait(std::uint64_t sequence, const std::function<bool()>& holds,
            const std::vector<std::size_t>& missing, std::optional<std::chrono::milliseconds> limit);
  /// Ends the team if the wait takes too long.
  void judge(const RankWait& wait);
  [[nodiscard]] const RankStatus& status() const noexcept { return state_.status(membership_.rank()); }

  Runtime& runtime_;
  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  const FlightRecord& record_;
  Abort& abort_;
  CallPatience patience_;
  LateWarnings warnings_;
  std::atomic<std::uint64_t> waits_in_ = 0;  ///< the call in which a thread waits; or 0
};

}  // namespace tutti::transport::team
