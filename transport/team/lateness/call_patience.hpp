// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/patience.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace tutti::transport::team {

/// Stores how long each of a rank's last calls waits for late ranks. Thread-safe.
class CallPatience {
 public:
  /// `usual` is the patience of calls made without a `PatienceGuard`.
  explicit CallPatience(std::chrono::milliseconds usual) noexcept : usual_(usual) {
    for (auto& patience : of_calls_) patience.store(usual.count(), std::memory_order_relaxed);
  }

  /// Records the patience of a call that the calling thread makes: the thread's own, or the usual one.
  void begin(std::uint64_t sequence) noexcept {
    of_calls_[sequence % of_calls_.size()].store(of_calling_thread().count(), std::memory_order_relaxed);
  }
  /// Returns the patience of calls whose thread sets none.
  [[nodiscard]] std::chrono::milliseconds usual() const noexcept { return usual_; }
  /// Returns the patience of a call that the calling thread makes now.
  [[nodiscard]] std::chrono::milliseconds of_calling_thread() const noexcept {
    return current_patience().value_or(usual_);
  }
  [[nodiscard]] std::chrono::milliseconds of(std::uint64_t sequence) const noexcept {
    return std::chrono::milliseconds(of_calls_[sequence % of_calls_.size()].load(std::memory_order_relaxed));
  }
  /// Returns the longest patience of the remembered calls.
  [[nodiscard]] std::chrono::milliseconds longest() const noexcept {
    std::chrono::milliseconds longest = usual_;
    for (const auto& patience : of_calls_)
      longest = std::max(longest, std::chrono::milliseconds(patience.load(std::memory_order_relaxed)));
    return longest;
  }

 private:
  const std::chrono::milliseconds usual_;
  std::array<std::atomic<std::int64_t>, RankStatus::history> of_calls_{};  ///< in milliseconds
};

}  // namespace tutti::transport::team
