// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/calls/call_log.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Watches over calls by rounds that run because a graph is launched. No host announces them: members note
/// which call they are in (`backend::TeamRecord`). This class compares the notes of all members. It ends the
/// team when two of them are in different calls at the same place, when a rank that a replay waits for has
/// left, or when a replay has waited too long; warnings name late ranks before that.
///
/// Used by the watchdog's thread only.
class Replays {
 public:
  Replays(const Membership& membership, const SharedState& state, const Progress& progress,
          const FailureDetector& failure_detector, const FlightRecord& record, Waiting& waiting, Abort& abort,
          const CallLog& calls);
  Replays(const Replays&) = delete;
  Replays& operator=(const Replays&) = delete;
  ~Replays() = default;

  /// Looks at all members' notes. If `may_judge` is false, no rank is taken to be late.
  void look_around(bool may_judge);
  /// Returns true if a local member waited in a replay at the last look.
  [[nodiscard]] bool are_under_way() const noexcept;
  /// Returns when a replay of a local member was last seen to begin or to go on, in nanoseconds of
  /// `RankStatus::now`; 0 if none was.
  [[nodiscard]] std::int64_t moved_at() const noexcept { return moved_at_; }

 private:
  /// A member's position among the calls, as it last noted it.
  struct Place {
    std::uint64_t first_round = 0;
    std::uint64_t call = 0;  ///< number of the call
    std::uint32_t latest_round = 0;
    bool waits_in_replay = false;

    friend bool operator==(const Place&, const Place&) = default;
  };
  struct LocalMember {
    Place place{};
    std::int64_t since = 0;  ///< time at which it was first seen there
  };
  /// Different calls of two members at the same place.
  struct Difference {
    std::size_t member = 0;
    std::size_t other = 0;
    std::uint64_t first_round = 0;
    std::uint64_t call = 0;  ///< as the record has it
    std::uint64_t other_call = 0;

    friend bool operator==(const Difference&, const Difference&) = default;
  };

  [[nodiscard]] Place place_of(std::size_t member) const noexcept;
  [[nodiscard]] std::optional<Difference> find_difference() const noexcept;
  /// Ends the team if a difference is seen twice; seen once, a note may have been half written.
  void compare();
  [[nodiscard]] std::string call_in_words(std::size_t member, std::uint64_t recorded) const;
  [[nodiscard]] std::string replay_in_words(std::uint64_t call) const;
  /// Returns the other ranks with a member that has not begun the replay.
  [[nodiscard]] std::vector<std::size_t> ranks_behind(const Place& place) const;
  /// Returns the other ranks with a member that has begun the same replay, and waits in it, or does not, as
  /// `that_wait` says.
  [[nodiscard]] std::vector<std::size_t> ranks_beside(const Place& place, bool that_wait) const;
  /// Returns the other ranks that may delay a replay that all have begun: those whose process is stopped; if
  /// there are none, all others, beginning with those that do not wait themselves.
  [[nodiscard]] std::vector<std::size_t> suspects(const Place& place) const;
  /// Ends the team if one of the ranks that have not begun the replay has left.
  void look_for_ranks_that_left(const Place& place);
  /// Warns of the ranks that the replay waits for, or ends the team, when it is time.
  void judge(const Place& place, std::chrono::nanoseconds lasted);
  [[nodiscard]] std::string who_is_late(const Place& place, const std::vector<std::size_t>& ranks,
                                        bool are_behind) const;
  void warn(const Place& place, std::chrono::nanoseconds lasted, const std::string& late);
  /// Returns true if no lower running rank waits in the same replay and warns.
  [[nodiscard]] bool tells_for_all(const Place& place) const;
  void note_that_it_goes_on();

  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  const FlightRecord& record_;
  Waiting& waiting_;
  Abort& abort_;
  const CallLog& calls_;
  std::vector<LocalMember> locals_;  ///< by local index
  std::optional<Difference> difference_;
  std::int64_t moved_at_ = 0;
  std::chrono::nanoseconds next_warning_{};
  bool has_warned_ = false;
};

}  // namespace tutti::transport::team
