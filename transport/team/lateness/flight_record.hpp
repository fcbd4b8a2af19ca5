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

/// What a team writes down of its calls: as JSON, for whoever asks, and after a timeout for those who look
/// into it. Thread-safe.
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

  /// Every rank's last calls, `most_calls` of each and those from call `since` on. `reason`: why the team is
  /// about to be ended, if it is.
  [[nodiscard]] std::string json(std::uint64_t most_calls = RankStatus::history,
                                 std::uint64_t since = UINT64_MAX, std::string_view reason = {}) const;
  /// The last calls before a timeout in call `sequence`; empty if there is no memory for it.
  [[nodiscard]] std::string of_timeout(std::uint64_t sequence, std::string_view reason) const noexcept;
  /// Writes down the record of the timeout that has ended the team, as far as this rank is the one that does.
  /// Waits for no reader.
  void keep(std::string_view record) const noexcept;

 private:
  /// Whether this host's ranks write the record to the log: those of one host do.
  [[nodiscard]] bool is_host_that_logs() const noexcept;

  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  const Abort& abort_;
};

}  // namespace tutti::transport::team
