#pragma once

#include <chrono>

namespace tutti::transport::ranks {

/// For a thread that looks again and again at what other ranks do: whether it may judge them by that. Not for
/// a while after it has not looked, because its process was stopped, say: what they have done meanwhile, an
/// end of the team included, may not have reached it yet.
class Lookout {
 public:
  using Clock = std::chrono::steady_clock;

  /// `timeout`: after which others are late.
  explicit Lookout(std::chrono::milliseconds timeout) : longest_gap_(timeout / 4), pause_(timeout / 2) {}

  /// To be called whenever the thread looks.
  [[nodiscard]] bool may_judge(Clock::time_point now) {
    if (now - last_look_ > longest_gap_) judges_from_ = now + pause_;
    last_look_ = now;
    return now >= judges_from_;
  }

 private:
  std::chrono::nanoseconds longest_gap_;
  std::chrono::nanoseconds pause_;
  Clock::time_point last_look_ = Clock::now();
  Clock::time_point judges_from_ = last_look_;
};

}  // namespace tutti::transport::ranks
