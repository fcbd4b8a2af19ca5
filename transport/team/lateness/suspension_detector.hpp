// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti::transport::team {

/// Tells a thread that looks again and again at what other ranks do whether it may judge them by that. A
/// thread that has paused, because its process was stopped, say, judges nobody for a while: what the others
/// have done meanwhile, an end of the team included, may not have reached it yet. A thread that always comes
/// late, because the machine is too busy, judges all the same.
class SuspensionDetector {
 public:
  using Clock = std::chrono::steady_clock;

  /// A thread that looks at least so often has not paused, however short the timeout is.
  static constexpr std::chrono::milliseconds shortest_gap{100};
  /// A thread judges no later than after so many gaps.
  static constexpr int most_gaps_in_a_row = 8;

  /// `timeout`: after which others are late.
  explicit SuspensionDetector(std::chrono::milliseconds timeout)
      : longest_gap_(std::max(timeout / 4, shortest_gap)), pause_(timeout / 2) {}

  /// Whether the thread, which looks now, may judge. It calls this whenever it looks.
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
  int gaps_ = 0;  ///< since it last might judge
};

}  // namespace tutti::transport::team
