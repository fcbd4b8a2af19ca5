// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::transport::team {

/// Detects that a thread was suspended, and so may not yet judge other ranks by what it sees of them. After a
/// long gap between two looks, as when its process was stopped, a thread judges nobody for a while: news of
/// the others, even of the end of the team, may not have reached it yet. A thread that is always slow,
/// because the machine is busy, judges all the same.
class SuspensionDetector {
 public:
  using Clock = std::chrono::steady_clock;

  /// A gap up to this length is no suspension, however short the timeout is.
  static constexpr std::chrono::milliseconds shortest_gap{100};
  /// The number of gaps in a row after which the thread may judge all the same.
  static constexpr int most_gaps_in_a_row = 8;

  /// `timeout` is the time after which other ranks are late.
  explicit SuspensionDetector(std::chrono::milliseconds timeout)
      : longest_gap_(std::max(timeout / 4, shortest_gap)), pause_(timeout / 2) {}

  /// Returns true if the thread may judge other ranks now. Called at each look.
  [[nodiscard]] bool may_judge(Clock::time_point now) {
    if (now - last_look_ > longest_gap_ && gaps_ < most_gaps_in_a_row) {
      ++gaps_;
      judges_from_ = now + pause_;
    }
    last_look_ = now;
    if (now < judges_from_) return false;
    gaps_ = 0;
    return true;
  }

 private:
  std::chrono::milliseconds longest_gap_;
  std::chrono::milliseconds pause_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point judges_from_ = last_look_;
  int gaps_ = 0;  ///< since it was last allowed to judge
};

}  // namespace tutti::transport::team
