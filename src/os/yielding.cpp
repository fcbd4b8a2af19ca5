// SPDX-License-Identifier: Apache-2.0
#include "os/yielding.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti::backend {
namespace {

using YieldClock = std::chrono::steady_clock;

/// A yield longer than this has given the processor to a thread with much work. A single such thread now and
/// then does not make a crowd: it may be this program's own that queues calls.
constexpr std::chrono::microseconds long_yield{500};
/// Total of long yields beyond which the machine counts as crowded. A tenth of the elapsed time is subtracted
/// from it.
constexpr YieldClock::duration crowded_from = std::chrono::milliseconds(10);
constexpr int forgetting = 10;
constexpr std::chrono::milliseconds crowded_for{100};

/// Counts the long yields of a thread.
struct LongYields {
  YieldClock::duration away{};
  YieldClock::time_point latest{};
  YieldClock::time_point crowded_until{};

  void add(YieldClock::time_point before, YieldClock::time_point after) {
    away = std::max(away - (before - latest) / forgetting, YieldClock::duration::zero()) + (after - before);
    latest = after;
    if (away <= crowded_from) return;
    crowded_until = after + crowded_for;
    away = {};
  }
};

}  // namespace

bool yield_unless_crowded() noexcept {
  thread_local LongYields seen;
  const auto before = YieldClock::now();
  if (before < seen.crowded_until) return false;
  std::this_thread::yield();
  const auto after = YieldClock::now();
  if (after - before > long_yield) seen.add(before, after);
  return true;
}

}  // namespace tutti::backend
