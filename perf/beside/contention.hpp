// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <functional>
#include <vector>

/// What two kinds of work that are queued on the same devices cost one another.
namespace tutti::perf {

/// Work in units that can be queued again and again.
struct Contender {
  std::vector<Stream> streams;    ///< where it is queued, one for each device
  std::function<void()> enqueue;  ///< queues one unit, on all of them
};

/// What a unit takes on the device where it takes longest, in microseconds.
struct ContendedTimes {
  double alone = 0;
  double beside = 0;  ///< while the other kind of work is under way throughout

  [[nodiscard]] double slowdown() const noexcept { return alone > 0 ? beside / alone : 0; }
};

/// Measures `measured` alone, and beside as much of `other` as covers it, on the same devices in the same
/// order. Each is the median of `runs` runs of so many units that they take some `run_us` microseconds. Warms
/// both up before. A unit of `other` has to take the devices longer than the host takes to queue it. Throws
/// Error(internal) if the other work, however much is queued, ends before what is measured does: then the
/// devices do not run both at once.
[[nodiscard]] ContendedTimes measure_contention(const Contender& measured, const Contender& other, int runs,
                                                double run_us);

}  // namespace tutti::perf
