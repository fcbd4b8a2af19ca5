// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/ranks.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <thread>
#include <vector>

namespace tutti::test::ranks {

/// Times after which ranks are killed, by rank; negative: never.
using Deaths = std::vector<std::chrono::microseconds>;

/// Kills this process when the rank's time has come.
inline void die_as(const Deaths& deaths, int rank) {
  const std::chrono::microseconds death = deaths[static_cast<std::size_t>(rank)];
  if (death.count() < 0) return;
  std::thread([death] {
    std::this_thread::sleep_for(death);
    std::raise(SIGKILL);
  }).detach();
}
inline int survivors_of(const Deaths& deaths) {
  return static_cast<int>(std::ranges::count_if(deaths, [](const auto& death) { return death.count() < 0; }));
}
inline std::vector<Ending> endings_of(const Deaths& deaths) {
  std::vector<Ending> endings;
  for (const auto& death : deaths) endings.push_back(death.count() < 0 ? all_right : killed);
  return endings;
}

}  // namespace tutti::test::ranks
