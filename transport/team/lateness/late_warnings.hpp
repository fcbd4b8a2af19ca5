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

/// Tells the log of a call that waits for ranks that are late, long before that ends the team: who they are,
/// again at growing distances, and that the call goes on. One of the ranks that wait tells for all.
/// Thread-safe.
class LateWarnings {
 public:
  LateWarnings(const Membership& membership, const SharedState& state, const Progress& progress,
               const FailureDetector& failure_detector)
      : membership_(membership), state_(state), progress_(progress), failure_detector_(failure_detector) {}
  LateWarnings(const LateWarnings&) = delete;
  LateWarnings& operator=(const LateWarnings&) = delete;
  ~LateWarnings() = default;

  /// A wait that has been told of is told of again when it has lasted so many times as long.
  static constexpr int growth = 3;
  /// After how long a wait that may last for `patience` is told of first: ten seconds, if that is early
  /// enough.
  [[nodiscard]] static std::chrono::nanoseconds first_after(std::chrono::nanoseconds patience) noexcept;
  /// Tells of the wait if it is time to. Of one wait at a time; where memory is short, nothing is told.
  void look(const RankWait& wait) noexcept;
  /// The waits in calls up to this one are over, and the team goes on.
  void goes_on(std::uint64_t sequence) noexcept;

 private:
  /// A wait that has lasted so long that it is told of.
  struct Told {
    std::uint64_t sequence = 0;
    std::int64_t since = 0;           ///< by `RankStatus::now`
    std::chrono::nanoseconds next{};  ///< when it is looked at again, after it has begun
    int looks = 0;
    bool is_in_log = false;
  };

  /// Whether other ranks wait in the same way and this one tells for them.
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
