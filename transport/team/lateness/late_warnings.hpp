// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace tutti::transport::team {

[[nodiscard]] constexpr std::int64_t whole_ms(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

/// Logs a warning when a call waits for late ranks, long before the team is ended: it names the ranks,
/// repeats at growing intervals, and says when the call goes on. One of the waiting ranks warns for all.
/// Thread-safe.
class LateWarnings {
 public:
  LateWarnings(const Membership& membership, const SharedState& state, const Progress& progress,
               const FailureDetector& failure_detector)
      : membership_(membership), state_(state), progress_(progress), failure_detector_(failure_detector) {}
  LateWarnings(const LateWarnings&) = delete;
  LateWarnings& operator=(const LateWarnings&) = delete;
  ~LateWarnings() = default;

  /// The next warning of a wait is due when it has lasted so many times as long.
  static constexpr int growth = 3;
  /// Returns the wait after which the first warning is due, if the wait may last for `patience`: ten seconds,
  /// or less if the patience is short.
  [[nodiscard]] static std::chrono::nanoseconds first_after(std::chrono::nanoseconds patience) noexcept;
  /// Warns of the wait if it is time to. Follows one wait at a time; does nothing where memory is short.
  void look(const RankWait& wait) noexcept;
  /// Notes that the waits in calls up to this one are over and the team goes on.
  void goes_on(std::uint64_t sequence) noexcept;

 private:
  /// A wait that has lasted long enough for a warning.
  struct Told {
    std::uint64_t sequence = 0;
    std::int64_t since = 0;           ///< by `RankStatus::now`
    std::chrono::nanoseconds next{};  ///< time after the beginning at which it is checked again
    int looks = 0;
    bool is_in_log = false;
  };

  /// Returns true if other ranks wait in the same way and this one warns for all.
  [[nodiscard]] bool tells_for_all(std::uint64_t sequence) const noexcept;
  void tell(const RankWait& wait);

  const Membership& membership_;
  const SharedState state_;
  const Progress& progress_;
  const FailureDetector& failure_detector_;
  std::mutex mutex_;
  std::optional<Told> told_;  ///< guarded by `mutex_`
};

}  // namespace tutti::transport::team
