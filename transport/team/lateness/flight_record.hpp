// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::transport::team {

/// Writes a team's last calls as JSON: on request, and after a timeout for diagnosis. Thread-safe.
class FlightRecord {
 public:
  FlightRecord(const Membership& membership, const SharedState& state, const Progress& progress,
               const FailureDetector& failure_detector, const Abort& abort)
      : membership_(membership),
        state_(state),
        progress_(progress),
        failure_detector_(failure_detector),
        abort_(abort) {}
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;
  ~FlightRecord() = default;

  /// Returns every rank's last calls: `most_calls` of each, and those from call `since` on. `reason` says why
  /// the team is about to be ended, if it is.
  [[nodiscard]] std::string json(std::uint64_t most_calls = RankStatus::history,
                                 std::uint64_t since = UINT64_MAX, std::string_view reason = {}) const;
  /// Returns the last calls before a timeout in call `sequence`; empty if memory is short.
  [[nodiscard]] std::string of_timeout(std::uint64_t sequence, std::string_view reason) const noexcept;
  /// Stores the record of the timeout that has ended the team, if this rank is the one that does so. Does not
  /// wait for a reader.
  void keep(std::string_view record) const noexcept;

 private:
  /// Returns true if the ranks of this host write the record to the log; the ranks of exactly one host do.
  [[nodiscard]] bool is_host_that_logs() const noexcept;

  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  const Abort& abort_;
};

}  // namespace tutti::transport::team
