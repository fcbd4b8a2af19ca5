// SPDX-License-Identifier: Apache-2.0
#include "backend/yielding.hpp"

#include <chrono>
#include <thread>

namespace tutti::backend {
namespace {

using YieldClock = std::chrono::steady_clock;

constexpr std::chrono::microseconds longest_yield{500};
constexpr std::chrono::milliseconds crowded_for{100};

}  // namespace

bool yield_unless_crowded() noexcept {
  thread_local YieldClock::time_point crowded_until{};
  const auto before = YieldClock::now();
  if (before < crowded_until) return false;
  std::this_thread::yield();
  const auto after = YieldClock::now();
  if (after - before > longest_yield) crowded_until = after + crowded_for;
  return true;
}

}  // namespace tutti::backend
