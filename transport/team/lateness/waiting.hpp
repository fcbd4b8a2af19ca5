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

/// Lets host threads wait for other ranks. A wait ends when its condition holds or the team ends. It ends the
/// team itself if it exceeds the call's patience (with a flight record), or the timeout for a rank that gives
/// no sign of life, if a rank that it waits for has left, or if a process is gone. Late ranks are reported
/// before that. Thread-safe.
class Waiting {
 public:
  /// Returns the ranks that have yet to do their part.
  using Missing = std::function<std::vector<std::size_t>()>;

  Waiting(Runtime& runtime, const Membership& membership, const SharedState& state, const Progress& progress,
          const FailureDetector& failure_detector, const FlightRecord& record, Abort& abort,
          std::chrono::milliseconds patience);
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() = default;

  /// Waits until `holds` returns true, in call `sequence`. Throws the error that has ended the team.
  void wait_for(std::uint64_t sequence, const std::function<bool()>& holds) {
    wait(sequence, holds, {}, std::nullopt);
  }
  /// Waits until `missing` returns no rank; if that takes too long, the error names the ranks it returns.
  /// Ends the team at once if one of them has left. `limit` replaces the call's patience.
  void wait_for_ranks(std::uint64_t sequence, const Missing& missing,
                      std::optional<std::chrono::milliseconds> limit = std::nullopt);

  /// Returns the calls' patience.
  [[nodiscard]] CallPatience& patience() noexcept { return patience_; }
  /// Warns of the call, which has waited for other ranks for `waited` and is not complete, or ends the team.
  void look_at_call(std::uint64_t sequence, std::chrono::nanoseconds waited);
  /// Notes that calls up to this one are complete.
  void have_completed(std::uint64_t sequence) noexcept { warnings_.goes_on(sequence); }
  /// Ends the team if the process of another rank of this host is gone without having left the team.
  void look_for_lost_ranks();
  /// Ends the team if one of the ranks that `missing` returns has left, as it will never come.
  void look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing);

 private:
  void wait(std::uint64_t sequence, const std::function<bool()>& holds,
            const std::vector<std::size_t>& missing, std::optional<std::chrono::milliseconds> limit);
  /// Ends the team if the wait has taken too long.
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
